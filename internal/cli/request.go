package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"connectrpc.com/connect"

	"skep.dev/skep/client"
	"skep.dev/skep/internal/cli/opened"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/launch"
)

// near is the daemon of a run. Nobody is asked whether it is there and which it is: that
// it takes the descriptors shows the one, and the request brings the other.
func (a *App) near(ctx context.Context) (*daemon, error) {
	if err := a.recover(); err != nil {
		return nil, err
	}
	d, err := a.connection()
	if err != nil {
		return nil, err
	}
	return d, a.report(ctx, d)
}

// ask sends the request, to another skepd if the first was none or is just ending: it
// has done nothing for us then. The bundle is closed.
func (s *session) ask(ctx context.Context, b *opened.Bundle) (*client.Events, error) {
	defer func() {
		b.Close() // the agent's end must not stay open here: its end is ours to see
		b.Files = nil
	}()
	for again := false; ; again = true {
		stream, err := s.askOnce(ctx, b)
		if err == nil || again || !errors.Is(err, client.ErrNotSent) {
			return stream, err
		}
		if _, err := s.app.daemon(ctx); err != nil {
			return nil, err
		}
	}
}

// askOnce returns client.ErrNotSent where no cell can have come of it.
func (s *session) askOnce(ctx context.Context, b *opened.Bundle) (*client.Events, error) {
	places := s.daemon.places
	if len(b.Files) > 0 {
		ticket, err := handover.Offer(launch.HandoverSocket(places), b.Roles, b.Files)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, silent(launch.APISocket(places), answerTime, err)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", client.ErrNotSent, err)
		}
		s.request.Ticket = ticket
	}
	return client.Run(ctx, launch.APISocket(places), places.State, s.request)
}

// misfit puts the reason in its place where a skepd has refused the greeting of a
// request: it is of another release, or of another state directory.
func (s *session) misfit(ctx context.Context, err error) error {
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		return err
	}
	if _, misfit := s.app.daemon(ctx); misfit != nil {
		return misfit
	}
	return err
}
