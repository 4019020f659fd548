package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
)

// merged has a cell add a file and records its merge.
func (l *lab) merged() (cell, hash string) {
	l.t.Helper()
	c := l.changed()
	_, hash, layer := l.diff(c.Id)
	l.fetch(layer)
	_, _, layer = l.plan(c.Id, hash)
	l.fetch(layer)
	q := &skepv1.MergeCommitRequest{Cell: c.Id, Hash: hash, Paths: [][]byte{[]byte(filepath.Join(l.work, "added"))}}
	if _, err := l.client().MergeCommit(l.t.Context(), connect.NewRequest(q)); err != nil {
		l.t.Fatal(err)
	}
	return c.Id, hash
}

func (l *lab) undo(hash string) (*skepv1.Cell, error) {
	r, err := l.client().MergeUndo(l.t.Context(), connect.NewRequest(&skepv1.MergeUndoRequest{Hash: hash}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// undone tells the end of an undo.
func (l *lab) undone(cell, hash string, done bool) error {
	if done {
		_, err := l.client().MergeCommit(l.t.Context(), connect.NewRequest(&skepv1.MergeCommitRequest{Cell: cell, Hash: hash, Undo: true}))
		return err
	}
	_, err := l.client().MergeAbort(l.t.Context(), connect.NewRequest(&skepv1.MergeAbortRequest{Cell: cell, Hash: hash, Reason: "no", Undo: true}))
	return err
}

// A merge that is taken back is approved in the record before, and has every path after
// (S4, D3); one that nobody recorded, or that was taken back, cannot be.
func TestUndoIsApprovedAndRecorded(t *testing.T) {
	l := newLab(t).start()
	if _, err := l.undo(strings.Repeat("0", 64)); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("what was never merged is taken back: %v", err)
	}
	cell, hash := l.merged()
	if err := l.undone(cell, hash, true); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("an undo that nobody approved was recorded: %v", err)
	}
	c, err := l.undo(hash)
	if err != nil || c.Id != cell {
		t.Fatalf("%v, %v", c, err)
	}
	if got := l.kinds(cell); got[len(got)-1] != "approval.decided" {
		t.Errorf("recorded %v before the tree is touched", got)
	}
	if err := l.undone(cell, hash, true); err != nil {
		t.Fatal(err)
	}
	var last *kind.MergeApplied
	f := ledger.Filter{Cell: cell, Kinds: []kind.Kind{kind.KindMergeApplied}}
	for e, err := range ledger.Read(filepath.Join(l.config.State, "ledger"), f) {
		if err != nil {
			t.Fatal(err)
		}
		body, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		last = body.(*kind.MergeApplied)
	}
	added := kind.Bytes(filepath.Join(l.work, "added"))
	if !last.Undo || last.Hash != hash || len(last.Paths) != 1 || last.Paths[0].Path != added || last.Paths[0].Op != "removed" ||
		last.Paths[0].Base == "" || last.Paths[0].Layer != "" {
		t.Errorf("recorded %+v", last)
	}
	if _, err := l.undo(hash); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("taken back twice: %v", err)
	}
	r, err := l.client().Get(t.Context(), connect.NewRequest(&skepv1.GetRequest{Cell: cell}))
	if err != nil || r.Msg.State != skepv1.CellState_CELL_STATE_UNDONE {
		t.Errorf("the layer is gone, and the cell is %v, %v", r, err)
	}
}

// A cell that was dropped keeps its record: what of it was merged can be taken back.
func TestUndoOfADroppedCell(t *testing.T) {
	l := newLab(t).start()
	c, err := l.run(l.request("", "/bin/sh", "-c", "echo new > added; echo x > .envrc"))
	if err != nil {
		t.Fatal(err)
	}
	_, hash, layer := l.diff(c.Id)
	l.fetch(layer)
	_, _, layer = l.plan(c.Id, hash)
	l.fetch(layer)
	q := &skepv1.MergeCommitRequest{Cell: c.Id, Hash: hash, Paths: [][]byte{[]byte(filepath.Join(l.work, "added"))}}
	if r, err := l.client().MergeCommit(t.Context(), connect.NewRequest(q)); err != nil || r.Msg.State != skepv1.CellState_CELL_STATE_STOPPED {
		t.Fatalf("%v, %v", r, err)
	}
	if _, err := l.client().Drop(t.Context(), connect.NewRequest(&skepv1.DropRequest{Cell: c.Id})); err != nil {
		t.Fatal(err)
	}
	if _, err := l.undo(hash); err != nil {
		t.Fatal(err)
	}
	if err := l.undone(c.Id, hash, true); err != nil {
		t.Fatal(err)
	}
	if got := l.kinds(c.Id); !slices.Equal(got[len(got)-2:], []string{"approval.decided", "merge.applied"}) {
		t.Errorf("recorded %v", got)
	}
}

// As for a merge: what a skepd recorded before it died is not recorded again.
func TestEndOfAnUndoIsRecordedOnce(t *testing.T) {
	for name, done := range map[string]bool{"merge.applied": true, "merge.refused": false} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t).start()
			cell, hash := l.merged()
			if _, err := l.undo(hash); err != nil {
				t.Fatal(err)
			}
			before := count(l.kinds(cell), name)
			plan := filepath.Join(l.config.State, "cells", cell, "undo-plan")
			raw, err := os.ReadFile(plan)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.undone(cell, hash, done); err != nil {
				t.Fatal(err)
			}
			l.stop()
			<-l.ended
			l.ended <- nil
			// What was recorded is durable; what came after it is lost.
			if err := os.WriteFile(plan, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			again := &lab{t: t, config: l.config, driver: l.driver, clock: l.clock, work: l.work}
			again.start()
			for range 2 { // with the plan, and without
				if err := again.undone(cell, hash, done); err != nil {
					t.Fatal(err)
				}
			}
			if got := again.kinds(cell); count(got, name) != before+1 {
				t.Errorf("recorded %v", got)
			}
			if _, err := os.Stat(plan); !os.IsNotExist(err) {
				t.Errorf("the plan is left: %v", err)
			}
		})
	}
}
