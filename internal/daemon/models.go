package daemon

import (
	"context"
	"errors"
	"os"

	"skep.dev/skep/internal/right"
)

// Models is the gateway to models, as far as the daemon needs it.
type Models interface {
	// Serve gives one cell's connection to the gateway, which is started if it
	// does not run. The connection stays the caller's.
	Serve(ctx context.Context, cell string, m right.Model, conn *os.File) error
	// End forgets the cell's accounts.
	End(cell string)
}

// serveModel connects a box to the gateway if its cell has a right to a model.
// The gateway starts at the first one.
func (d *Daemon) serveModel(ctx context.Context, l *life, b *box) error {
	if len(l.profile.Model.Roles) == 0 {
		return nil
	}
	if d.Models == nil {
		return errors.New("the profile has a model right, and this skepd has no gateway: is skep-model beside it?")
	}
	return d.Models.Serve(ctx, l.id, l.profile.Model, b.model)
}
