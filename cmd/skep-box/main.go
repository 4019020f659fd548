// Skep-box is the way out of one cell. It is started by skepd with descriptors
// and nothing else: 3 the daemon, 4 the cell's warden, 5 the lifeline,
// 6 (optional) the model gateway. It takes no flags and reads no file.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/box"
	"skep.dev/skep/internal/dest/internet"
	"skep.dev/skep/internal/dest/model"
	"skep.dev/skep/internal/h2"
)

func main() {
	if err := run(); err != nil && !errors.Is(err, box.ErrWardenGone) {
		fmt.Fprintln(os.Stderr, "skep-box:", err)
		os.Exit(1)
	}
}

func run() error {
	config, err := box.Inherit()
	if err != nil {
		return err
	}
	config.Internet = &internet.Dest{}
	config.Gateway = func(use func() (*h2.Conn, func())) boundary.Dest { return model.Dest{Gateway: use} }
	config.Confine = box.Confine
	return box.Run(context.Background(), config)
}
