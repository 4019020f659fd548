package box

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/box/vault"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/secret"
)

var (
	errOtherSecrets = errors.New("a running cell has the secrets that it began with")
	errNoValues     = errors.New("the first order of a cell with secrets is to take their values")
	errNoRoots      = errors.New("nobody vouches for the destinations of secrets")
	errNoAuthority  = errors.New("the box before left no authority")
)

// open makes the vault of a cell that has secrets, nil for any other, before anything of
// the cell is there: it tells skepd what the cell is to trust, and takes the values. A
// successor gets both from the box before it.
func open(ctx context.Context, line *os.File, l *link, a assignment) (*vault.Vault, error) {
	if a.policy == nil || len(a.policy.secrets) == 0 {
		return nil, nil
	}
	v, err := vault.New(a.policy.secrets)
	if err != nil || a.successor {
		return v, err
	}
	if err := v.Found(time.Now()); err != nil {
		return v, err
	}
	var m writer
	m.message(1, v.Authority.Root())
	if _, err := l.call(ctx, "Trust", m); err != nil {
		return v, err
	}
	order, file, err := lifeline.Next(line)
	if err != nil {
		return v, fmt.Errorf("wait for the values of secrets: %w", err)
	}
	if order != lifeline.Secrets {
		return v, errNoValues
	}
	// What is wrong with one value is skepd's to say: that secret is not available.
	return v, lifeline.Answer(line, v.Fill(file))
}

// intercept has flows to bound names carried with the cell's secrets.
func (b *box) intercept(with func(*vault.Vault, *x509.CertPool, vault.Record), roots []byte) error {
	if b.secrets == nil {
		return nil
	}
	pool := x509.NewCertPool()
	switch {
	case b.secrets.Authority == nil:
		return errNoAuthority
	case with == nil || !pool.AppendCertsFromPEM(roots):
		return errNoRoots
	}
	with(b.secrets, pool, b.link.useSecret)
	return nil
}

// useSecret has a use or misuse written down (B192).
func (l *link) useSecret(ctx context.Context, id flow.ID, host string, use secret.Use, why flow.Reason) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), boundary.RecordWait)
	defer cancel()
	var m writer
	m.text(1, id.String())
	m.text(2, host)
	m.text(3, use.Secret)
	m.text(4, use.Place.String())
	m.text(5, why.Token())
	if use.End && why != flow.None {
		m.number(6, 1)
	}
	_, err := l.call(ctx, "UseSecret", m)
	return err
}
