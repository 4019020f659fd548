package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/merging"
	"skep.dev/skep/internal/cli/words"
	"skep.dev/skep/internal/snapshot/merge"
)

// undo takes a merge back: journal and old files are in the user's own state, the approval
// and the end in the record.
func (a *App) undo(ctx context.Context, hash string) error {
	own, err := a.own()
	if err != nil {
		return err
	}
	if err := a.recover(); err != nil {
		return err
	}
	// Before a skepd is started for nothing, and anything approved.
	full, err := merge.Undoable(own, hash)
	if err != nil {
		return err
	}
	d, err := a.ready(ctx)
	if err != nil {
		return err
	}
	return a.undone(ctx, d, own, full)
}

// undone has it approved, writes to the tree and has the end recorded, as applied does. No
// other merge of this user's comes between approval and writing.
func (a *App) undone(ctx context.Context, d *daemon, own, hash string) error {
	var pending *merging.Pending
	cell := ""
	shown := a.working("taking back")
	err := merge.Undo(ctx, own, hash, func() error {
		c, err := d.MergeUndo(ctx, connect.NewRequest(&skepv1.MergeUndoRequest{Hash: hash}))
		if err != nil {
			return err
		}
		cell = c.Msg.Id
		pending, err = merging.Begin(own, merging.Merge{Cell: cell, Hash: hash, State: d.places.State, At: time.Now(), Undo: true})
		return err
	}, shown.step)
	shown.stop()
	if cell == "" {
		return err // nobody has approved anything
	}
	if pending != nil {
		defer pending.Release()
	}
	told := context.WithoutCancel(ctx)
	if err != nil && pending != nil {
		// What is left to tidy up is the next command's, as is telling.
		if done, _ := merge.Undone(own, hash, pending.At); done {
			return err
		}
	}
	if err != nil {
		q := &skepv1.MergeAbortRequest{Cell: cell, Hash: hash, Reason: err.Error(), Undo: true}
		_, tell := d.MergeAbort(told, connect.NewRequest(q))
		err = fmt.Errorf("nothing was taken back: %w", errors.Join(err, tell))
		if tell == nil && pending != nil {
			err = errors.Join(err, pending.End())
		}
		return err
	}
	r, err := d.MergeCommit(told, connect.NewRequest(&skepv1.MergeCommitRequest{Cell: cell, Hash: hash, Undo: true}))
	if err != nil {
		return fmt.Errorf("the merge is undone, but skepd could not record it: %w", err)
	}
	if err := a.printUndone(r.Msg, hash); err != nil {
		return err
	}
	return pending.End()
}

func (a *App) printUndone(c *skepv1.Cell, hash string) error {
	if a.json {
		return a.printValue(map[string]any{"hash": hash, "undone": true, "cell": c.Id, "state": words.State(c.State)})
	}
	rest := "your tree is as it was before; what the cell wrote is gone, for its layer went with the merge: it cannot be merged again"
	if c.State == skepv1.CellState_CELL_STATE_STOPPED {
		rest = fmt.Sprintf("the cell still has it: skep diff %s", c.Id)
	}
	_, err := fmt.Fprintf(a.Out, "the merge of %.12s is undone; %s\n", hash, rest)
	return err
}
