package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/furniture/trust"
	"skep.dev/skep/internal/daemon/secrets"
	"skep.dev/skep/internal/secret/listed"
)

// secretsEvery is how soon a source that has changed is noticed.
const secretsEvery = time.Second

// entrust gives a new box the values of its cell's secrets, and has the cell trust what the
// box signs. Of a cell without secrets it does nothing.
func (d *Daemon) entrust(ctx context.Context, l *life, b *boxes.Box, values *os.File) error {
	if l.secrets == nil {
		return nil
	}
	root, err := b.Link.Trusted(ctx)
	if err != nil {
		return err
	}
	if err := b.Link.Secrets(ctx, values); err != nil {
		return err
	}
	ceiling, err := d.Ceiling()
	if err != nil {
		return err
	}
	return trust.Furnish(l.spec, trust.Roots(ceiling.Roots), root)
}

// watchSecrets looks at the sources of a cell's secrets for as long as it lives (B131).
func (d *Daemon) watchSecrets(l *life) {
	if l.secrets == nil {
		return
	}
	l.after("secrets", secretsEvery, func() {
		if l.secrets.Changed() {
			d.giveSecrets(d.ctx, l)
		}
		d.watchSecrets(l)
	})
}

// giveSecrets gives the values as they are now to every box of the cell: one that was
// replaced has flows, too.
func (d *Daemon) giveSecrets(ctx context.Context, l *life) {
	if err := l.secrets.Give(ctx, l.takers()); err != nil {
		d.Log.Warn("a secret is not available", "cell", l.id, "err", err)
	}
}

func (l *life) takers() (all []secrets.Box) {
	for _, b := range l.boundary.All() {
		all = append(all, b.Link)
	}
	return all
}

// secretsOf is a running cell's secrets and who takes their values.
func (d *Daemon) secretsOf(ref string) (*secrets.Cell, []secrets.Box, error) {
	r, err := d.find(ref)
	if err != nil {
		return nil, nil, err
	}
	l := d.lifeOf(r.ID)
	if l == nil || l.cell() == nil {
		return nil, nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the cell does not run"))
	}
	return l.secrets, l.takers(), nil
}

// UseSecret implements boxlink.Recorder: it returns when the entry is durable. A misuse that
// ends the cell does so by the profile's word, not by the box's.
func (r recorder) UseSecret(id string, q *skepv1.UseSecretRequest) error {
	body, err := boxlink.SecretBody(q)
	if err != nil {
		return err
	}
	if q.Secret != "" && !r.cell.secrets.Named(q.Secret) {
		return fmt.Errorf("the cell has no secret %q", q.Secret)
	}
	if err := r.record.Append(id, body); err != nil {
		return err
	}
	r.cell.counted.Secret(q.Reason)
	if q.Reason == "" {
		return nil
	}
	r.cells.Count(id, 0, 1)
	if q.End && slices.ContainsFunc(r.cell.profile.Secrets, func(s listed.Secret) bool { return s.Name == q.Secret && s.End }) {
		r.cell.end(cells.Cause{Word: "revoked", Detail: fmt.Sprintf("secret %s was misused: %s at %s", q.Secret, q.Reason, q.Host)})
	}
	return nil
}
