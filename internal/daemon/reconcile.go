package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/ending"
)

// reconcile ends and records every cell that an earlier daemon left, and removes
// what belongs to none (L20). Its box has ended with its connection, so the cell
// could reach nothing any more.
func (d *Daemon) reconcile(ctx context.Context, rests []string) error {
	for _, r := range d.cells.All() {
		if d.lifeOf(r.ID) != nil {
			continue // one that we go on with
		}
		if !r.State.Ended() {
			if err := d.endOrphan(ctx, r); err != nil {
				return err
			}
			continue
		}
		// A crash between the record and the removal of a layer leaves the layer.
		if !r.State.HasLayer() {
			d.removeLayer(r.ID)
		}
	}
	for _, id := range rests {
		if err := os.RemoveAll(d.cells.Dir(id)); err != nil {
			return fmt.Errorf("remove the rest of cell %s: %w", id, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(d.State, proofDir)); err != nil {
		return fmt.Errorf("remove the rest of a self-test: %w", err)
	}
	return d.sweepRun(ctx)
}

// endOrphan ends a cell by its warden, if that lives, and records its end.
func (d *Daemon) endOrphan(ctx context.Context, r cells.Record) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	was, err := d.Orphan(ctx, d.house.Warden(r.ID))
	if err != nil {
		return fmt.Errorf("end cell %s, which an earlier skepd left: %w", r.ID, err)
	}
	defer d.clear(r.ID)
	started, end, at, err := ending.Recorded(filepath.Join(d.State, "ledger"), r.ID)
	if err != nil {
		d.Log.Error("look for start and end of a cell in the ledger", "cell", r.ID, "err", err)
	}
	if err := d.cells.Set(r.ID, func(r *cells.Record) { r.Started = started }); err != nil {
		return err
	}
	defer d.book.Keep(r.ID)
	if end != nil {
		d.book.Tell(r.ID, at, end)
		return nil
	}
	cause := cells.Cause{Word: "daemon-died", Detail: "skepd ended before the cell; the cell had ended by itself"}
	if was {
		cause.Detail = "skepd ended before the cell, which was ended at the next start"
	}
	begin := started
	if begin.IsZero() {
		begin = r.Created
		// It may have been executed just before the crash, so its layer is kept.
		cause.Detail += "; it had not been recorded as running"
	}
	d.book.Settle(r.ID, begin, ending.Failed, cause, cells.Stopped)
	return nil
}

// sweepRun ends cells that have a socket and no record, which can only be when the
// state directory was replaced, and removes what they and ended ones left.
func (d *Daemon) sweepRun(ctx context.Context) error {
	dir := filepath.Join(d.Run, "cells")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for cells that are left: %w", err)
	}
	for _, e := range entries {
		if !cells.ValidID(e.Name()) || d.lifeOf(e.Name()) != nil {
			continue
		}
		if _, err := d.Orphan(ctx, filepath.Join(dir, e.Name(), "w")); err != nil {
			return fmt.Errorf("end cell %s, which has no record: %w", e.Name(), err)
		}
		d.clear(e.Name())
	}
	return nil
}
