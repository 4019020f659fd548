// Skep-box is the way out of one cell. Skepd starts it with descriptors and nothing else:
// 3 the daemon, 4 the cell's warden, 5 its lifeline, 6 (optional) the model gateway. As
// `skep-box tunnel` it serves a cell of another runtime; then 3 is the connector, 4 a
// listening socket, and 5 its lifeline. Neither takes a flag or reads a file: `skep-box run` and `skep-box
// serve`, for a person, hand over to skep-connector, which does.
package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/box"
	"skep.dev/skep/internal/box/tunneled"
	"skep.dev/skep/internal/box/vault"
	"skep.dev/skep/internal/dest/desk"
	"skep.dev/skep/internal/dest/intercept"
	"skep.dev/skep/internal/dest/internet"
	"skep.dev/skep/internal/dest/inward"
	"skep.dev/skep/internal/dest/model"
	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/sys/inplace"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, box.ErrWardenGone) {
		fmt.Fprintln(os.Stderr, "skep-box:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		return serveCell()
	case len(args) == 1 && args[0] == "tunnel":
		return serveTunnels()
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	connector := filepath.Join(filepath.Dir(self), "skep-connector")
	return inplace.Execute(connector, append([]string{connector}, args...), os.Environ())
}

func serveCell() error {
	config, err := box.Inherit()
	if err != nil {
		return err
	}
	dest := &internet.Dest{}
	config.Internet, config.Intercept = dest, intercepting(dest)
	config.Gateway = func(use func() (*h2.Conn, func())) boundary.Dest { return model.Dest{Gateway: use} }
	config.Desk = func(d *boundary.Denials, p *box.People) boundary.Dest { return desk.New(d, p) }
	config.Inward = func(reach box.Reach) boundary.Dest { return inward.New(reach) }
	config.Confine = box.Confine
	return box.Run(context.Background(), config)
}

// intercepting has flows to bound names carried with the cell's secrets.
func intercepting(dest *internet.Dest) func(*vault.Vault, *x509.CertPool, vault.Record) {
	return func(v *vault.Vault, roots *x509.CertPool, record vault.Record) {
		dest.Intercept(&intercept.Secrets{Keeper: v.Keeper, Authority: v.Authority, Roots: roots, Now: time.Now, Record: record})
	}
}

func serveTunnels() error {
	config, err := tunneled.Inherit()
	if err != nil {
		return err
	}
	dest := &internet.Dest{}
	config.Internet, config.Intercept, config.Confine = dest, intercepting(dest), box.Confine
	config.Inward = func(reach tunneled.Reach) boundary.Dest { return inward.New(reach) }
	return tunneled.Run(context.Background(), config)
}
