package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"

	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/models"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/sys"
)

// Models is the gateway to models, as far as the daemon needs it.
type Models interface {
	// Serve gives one cell's connection to the gateway, which is started if it
	// does not run. The connection stays the caller's.
	Serve(ctx context.Context, cell string, m right.Model, conn *os.File) error
	// End breaks off a cell's calls and returns when the last one is recorded.
	End(ctx context.Context, cell string) error
	// Close ends the gateway.
	Close() error
}

// RecordModel makes the gateway's entry of a living cell durable, and counts
// a refusal. The gateway can speak for no other.
func (d *Daemon) RecordModel(ctx context.Context, cell string, body kind.Body) error {
	if d.lifeOf(cell) == nil {
		return errNotLive
	}
	if err := d.record.Append(cell, body); err != nil {
		return err
	}
	if kind.DecisionOf(body) == kind.Deny {
		d.cells.Count(cell, 0, 1)
	}
	return nil
}

// serveModel connects a box to the gateway if its cell has a right to a model.
// The gateway starts at the first one.
func (d *Daemon) serveModel(ctx context.Context, l *life, b *boxes.Box) error {
	if len(l.profile.Model.Roles) == 0 {
		return nil
	}
	if d.models == nil {
		return errors.New("the profile has a model right, and this skepd has no gateway")
	}
	err := d.models.Serve(ctx, l.id, l.profile.Model, b.Model)
	if errors.Is(err, models.ErrNoRole) {
		l.note(err.Error())
		return nil // what it asks of a model is refused
	}
	return err
}

// modelsAgain gives every running cell that had the gateway the one that runs now, which
// is started if none does: the last one died.
func (d *Daemon) modelsAgain(ctx context.Context) error {
	var failed error
	for _, l := range d.lives() {
		if len(l.profile.Model.Roles) == 0 {
			continue
		}
		var err error
		for _, b := range l.boundary.All() {
			err = errors.Join(err, d.modelAgain(ctx, l, b))
		}
		if d.lifeOf(l.id) == nil { // it ended meanwhile
			d.endModel(ctx, l)
		} else if err != nil {
			failed = errors.Join(failed, fmt.Errorf("cell %s: %w", l.id, err))
		}
	}
	return failed
}

func (d *Daemon) modelAgain(ctx context.Context, l *life, b *boxes.Box) error {
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		return err
	}
	defer sys.CloseAll([]*os.File{ours, theirs})
	if err := d.models.Serve(ctx, l.id, l.profile.Model, ours); err != nil {
		if errors.Is(err, models.ErrNoRole) {
			return nil // what it asks of a model is refused
		}
		return err
	}
	return b.Link.Model(ctx, theirs)
}

// endModel ends the cell's part in the gateway, before the cell's end is recorded.
func (d *Daemon) endModel(ctx context.Context, l *life) {
	if len(l.profile.Model.Roles) == 0 || d.models == nil {
		return
	}
	if err := d.models.End(ctx, l.id); err != nil {
		d.Log.Warn("the gateway did not finish", "cell", l.id, "err", err)
	}
}
