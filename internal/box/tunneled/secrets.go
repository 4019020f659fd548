package tunneled

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/boundary/link"
	"skep.dev/skep/internal/box/vault"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/secret"
)

var (
	errOtherSecrets = errors.New("an attached agent keeps the secrets that it was attached with: detach it first")
	errNoValues     = errors.New("the first order of a cell with secrets is to take their values")
	errNoRoots      = errors.New("nobody vouches for the destinations of secrets")
)

// open makes the vault of a cell that has secrets: it tells the connector what the cell is to
// trust, and takes the values.
func (b *box) open(c Config, a link.Assign) (err error) {
	if len(a.Secrets) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	if c.Intercept == nil || c.Lifeline == nil || !pool.AppendCertsFromPEM(a.Roots) {
		return errNoRoots
	}
	if b.secrets, err = vault.New(a.Secrets); err != nil {
		return err
	}
	if err := b.secrets.Found(time.Now()); err != nil {
		return err
	}
	if err := b.conn.Send(link.Word{Trust: b.secrets.Authority.Root()}); err != nil {
		return err
	}
	if err := b.take(c.Lifeline); err != nil {
		return err
	}
	c.Intercept(b.secrets, pool, b.useSecret)
	return nil
}

// take is one order of the lifeline.
func (b *box) take(line *os.File) error {
	order, file, err := lifeline.Next(line)
	if err != nil {
		return fmt.Errorf("wait for the values of secrets: %w", err)
	}
	if order != lifeline.Secrets {
		return errNoValues
	}
	// What is wrong with one value is the connector's to say: that secret is not available.
	return lifeline.Answer(line, b.secrets.Fill(file))
}

// refill takes new values for as long as the connector is there.
func (b *box) refill(line *os.File) error {
	for {
		if err := b.take(line); err != nil {
			return err
		}
	}
}

// bound tells whether a policy is for the secrets that there are.
func (b *box) bound(p policy.Policy) bool {
	return len(p.Bound) == 0 && len(b.policy.Bound) == 0 || reflect.DeepEqual(p.Bound, b.policy.Bound)
}

// useSecret has a use or misuse written down.
func (b *box) useSecret(ctx context.Context, id flow.ID, host string, use secret.Use, why flow.Reason) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), boundary.RecordWait)
	defer cancel()
	r := link.Record{
		Kind: "secret", Time: time.Now().UTC(), Policy: b.gate.Policy().Version, Wire: flow.H1.String(), Transport: flow.TCP.String(), Direction: flow.Out.String(),
		Destination: host, Decision: "allow", Reason: why.Token(), Flow: id.String(), Count: 1, Secret: use.Secret, Place: use.Place.String(),
	}
	if why != flow.None {
		r.Decision = "block"
	}
	return b.recorder.write(ctx, &pending{record: r, done: make(chan error, 1)})
}
