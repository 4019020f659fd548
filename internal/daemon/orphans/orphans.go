// Package orphans ends and records what an earlier skepd left (L20).
//
// Its law: what it has ended is recorded once, and what belongs to nobody is removed.
package orphans

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/daemon/furniture"
)

// Finder finds what an earlier skepd left.
type Finder struct {
	Cells *cells.Store
	House *furniture.House
	Book  *ending.Book
	// End ends a cell by its warden's socket, and says whether there was one.
	End func(ctx context.Context, socket string) (was bool, err error)
	// Lives tells whether a cell is ours, and goes on.
	Lives func(cell string) bool
	// Clear removes what the host keeps for a cell whose processes are gone.
	Clear func(cell string)
	// Drop removes the layer of a cell.
	Drop func(cell string)
	// Answers makes up for a crash between what a person said and its effect.
	Answers func(r cells.Record) error
	Ledger  string // its directory
	Log     *slog.Logger
}

// Reconcile ends and records every cell that an earlier daemon left, and removes
// what belongs to none (L20). Its box has ended with its connection, so the cell
// could reach nothing any more.
func (f *Finder) Reconcile(ctx context.Context, rests []string) error {
	for _, r := range f.Cells.All() {
		if f.Lives(r.ID) {
			continue // one that we go on with
		}
		if !r.State.Ended() {
			if err := f.end(ctx, r); err != nil {
				return err
			}
			continue
		}
		// A crash between the record and the removal of a layer leaves the layer.
		if !r.HasLayer() {
			f.Drop(r.ID)
		}
	}
	for _, id := range rests {
		if err := os.RemoveAll(f.Cells.Dir(id)); err != nil {
			return fmt.Errorf("remove the rest of cell %s: %w", id, err)
		}
	}
	return f.sweepRun(ctx)
}

// end ends a cell by its warden, if that lives, and records its end.
func (f *Finder) end(ctx context.Context, r cells.Record) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	was, err := f.End(ctx, f.House.Warden(r.ID))
	if err != nil {
		return fmt.Errorf("end cell %s, which an earlier skepd left: %w", r.ID, err)
	}
	defer f.Clear(r.ID)
	started, end, at, err := ending.Recorded(f.Ledger, r.ID)
	if err != nil {
		f.Log.Error("look for start and end of a cell in the ledger", "cell", r.ID, "err", err)
	}
	if err := f.Answers(r); err != nil {
		f.Log.Error("look for what was approved for good in the ledger", "cell", r.ID, "err", err)
	}
	if err := f.Cells.Set(r.ID, func(r *cells.Record) { r.Started = started }); err != nil {
		return err
	}
	defer f.Book.Keep(r.ID)
	if end != nil {
		f.Book.Tell(r.ID, at, end)
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
	f.Book.Settle(r.ID, begin, ending.Failed, cause, cells.Stopped)
	return nil
}

// sweepRun ends cells that have a socket and no record, which can only be when the
// state directory was replaced, and removes what they and ended ones left.
func (f *Finder) sweepRun(ctx context.Context) error {
	dir := filepath.Join(f.House.Run, "cells")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for cells that are left: %w", err)
	}
	for _, e := range entries {
		if !cells.ValidID(e.Name()) || f.Lives(e.Name()) {
			continue
		}
		if _, err := f.End(ctx, filepath.Join(dir, e.Name(), "w")); err != nil {
			return fmt.Errorf("end cell %s, which has no record: %w", e.Name(), err)
		}
		f.Clear(e.Name())
	}
	return nil
}
