package daemon

import (
	"context"

	"skep.dev/skep/internal/daemon/models"
	"skep.dev/skep/internal/ledger/kind"
)

// Models is the gateway to models, as far as the daemon needs it.
type Models interface {
	models.Server
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

// asking is the cell for the gateway.
func (l *life) asking() models.Cell {
	return models.Cell{
		ID: l.id, Right: l.profile.Model, Boundary: &l.boundary, Note: l.note, Lives: func() bool { return l.d.lifeOf(l.id) != nil },
	}
}

// modelsAgain is for after the gateway died.
func (d *Daemon) modelsAgain(ctx context.Context) error {
	var all []models.Cell
	for _, l := range d.lives() {
		all = append(all, l.asking())
	}
	return models.Again(ctx, d.models, all)
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
