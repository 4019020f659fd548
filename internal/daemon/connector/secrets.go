package connector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"skep.dev/skep/internal/daemon/secrets"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/secret/listed"
	"skep.dev/skep/internal/sys"
)

// secretsEvery is how soon a source that has changed is noticed.
const secretsEvery = time.Second

var errOtherSecrets = errors.New("it is attached with other secrets; detach it first")

// sources opens what a bundle's secrets are read from, with our own rights; nil without any.
func sources(list []listed.Secret) (*secrets.Cell, error) {
	var b handover.Bundle
	defer b.Close()
	for _, s := range list {
		dir, err := sys.OpenPath(filepath.Dir(s.Source.File))
		if err != nil {
			return nil, fmt.Errorf("the source of secret %q: %w", s.Name, err)
		}
		entry := filepath.Base(s.Source.File)
		b.Roles = append(b.Roles, handover.Role{Role: handover.RoleDir, Path: s.Name + "/" + entry})
		b.Files = append(b.Files, dir)
		f, err := sys.OpenEntry(dir, entry)
		if err != nil {
			return nil, fmt.Errorf("the source of secret %q: %w", s.Name, err)
		}
		b.Roles = append(b.Roles, handover.Role{Role: handover.RoleSecret, Path: s.Name})
		b.Files = append(b.Files, f)
	}
	return secrets.Take(list, &b)
}

// sameSecrets tells whether two bundles have the same bindings, wherever they stand.
func sameSecrets(a, b []listed.Secret) bool {
	return slices.EqualFunc(a, b, func(x, y listed.Secret) bool { return x.Text(strconv.Quote) == y.Text(strconv.Quote) })
}

// entrust gives a new box the values, and learns what its cell is to trust.
func (r *running) entrust(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	select {
	case r.trust = <-r.trusted:
	case <-r.gone:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
	err := r.secrets.Give(ctx, []secrets.Box{r})
	if err != nil {
		r.signal() // nobody waits for a box without its values
	}
	return err
}

// Secrets implements secrets.Box.
func (r *running) Secrets(ctx context.Context, parcel *os.File) error {
	return r.line.Ask(ctx, lifeline.Secrets, parcel)
}

// watchSecrets gives the box new values as sources change, until it is gone (B131).
func (r *running) watchSecrets() {
	tick := time.NewTicker(secretsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if r.secrets.Changed() {
				r.refresh(context.Background())
			}
		case <-r.gone:
			return
		}
	}
}

// refresh reads the values anew. What cannot be read is not available from now on.
func (r *running) refresh(ctx context.Context) {
	if err := r.secrets.Give(ctx, []secrets.Box{r}); err != nil {
		_ = r.sink.event(r.who, event{Kind: "secret-unavailable", Why: err.Error()}) // the sink's own fault is told by the next record
	}
}
