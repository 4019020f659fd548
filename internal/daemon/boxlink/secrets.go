package boxlink

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/secret"
)

// Trusted is what a cell with secrets is to trust, one certificate, PEM: the box, which
// has got its assignment, makes it (B124).
func (l *Link) Trusted(ctx context.Context) ([]byte, error) {
	select {
	case root := <-l.trusted:
		return root, nil
	case <-l.done:
		return nil, errors.New("the box ended before it had an authority")
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the box: %w", ctx.Err())
	}
}

// Secrets gives the box the values of its cell's secrets, in a parcel, which stays the
// caller's. From its answer on they are what is filled in (B131).
func (l *Link) Secrets(ctx context.Context, parcel *os.File) error {
	if err := l.lifeline.Ask(ctx, lifeline.Secrets, parcel); err != nil {
		return fmt.Errorf("give a box the values of secrets: %w", err)
	}
	return nil
}

func (s *service) trust(body []byte) *fault {
	q := &skepv1.TrustRequest{}
	if f := read(body, q); f != nil {
		return f
	}
	if _, _, f := s.cell(); f != nil {
		return f
	}
	select {
	case s.trusted <- q.Root:
		return nil
	default:
		return faultf("failed_precondition", "the cell has an authority already")
	}
}

// useSecret answers once it is durable.
func (s *service) useSecret(c *h2.Call) {
	q := &skepv1.UseSecretRequest{}
	cell, r, ok := s.request(c, q)
	if !ok {
		return
	}
	if _, err := SecretBody(q); err != nil {
		answer(c, &fault{"invalid_argument", err})
		return
	}
	if err := r.UseSecret(cell, q); err != nil {
		answer(c, &fault{"unavailable", err})
		return
	}
	answer(c, nil)
}

// SecretBody is the entry of a use or misuse. A box makes values of it, never its form.
func SecretBody(q *skepv1.UseSecretRequest) (*kind.SecretUsed, error) {
	if id, err := hex.DecodeString(q.Flow); err != nil || len(id) != 16 {
		return nil, errors.New("a use of a secret names no flow")
	}
	b := &kind.SecretUsed{Secret: q.Secret, Flow: q.Flow, Host: kind.Bytes(q.Host), Placement: q.Place, Decision: "allow", Reason: q.Reason}
	if q.Place != "" {
		if _, err := secret.ParsePlace(q.Place); err != nil {
			return nil, fmt.Errorf("a use of a secret: %w", err)
		}
	}
	if q.Reason != "" {
		b.Decision = "block"
		if _, err := flow.ParseReason(q.Reason); err != nil {
			return nil, fmt.Errorf("a misuse of a secret: %w", err)
		}
	}
	return b, nil
}
