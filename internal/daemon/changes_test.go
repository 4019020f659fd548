package daemon

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/sys"
)

// roots leaves the work directory with the daemon, as skep does.
func (l *lab) roots() string {
	l.t.Helper()
	f, err := sys.OpenPlace(l.work)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	ticket, err := handover.Offer(filepath.Join(l.config.Run, "fd.sock"), []handover.Role{{Role: handover.RolePath, Path: l.work}}, []*os.File{f})
	if err != nil {
		l.t.Fatal(err)
	}
	return ticket
}

// read takes a stream of a difference apart.
func read(t *testing.T, stream *connect.ServerStreamForClient[skepv1.DiffChunk], err error) (paths []string, hash, layer string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		m := stream.Msg()
		if m.Hash != "" {
			hash, layer = m.Hash, m.LayerTicket
			continue
		}
		paths = append(paths, m.Entry.Op+" "+string(m.Entry.Path))
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return paths, hash, layer
}

// changed runs a cell that adds a file.
func (l *lab) changed() *skepv1.Cell {
	l.t.Helper()
	c, err := l.run(l.request("", "/bin/sh", "-c", "echo new > added"))
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *lab) diff(cell string) (paths []string, hash, layer string) {
	l.t.Helper()
	s, err := l.client().Diff(context.Background(), connect.NewRequest(&skepv1.DiffRequest{Cell: cell, Ticket: l.roots()}))
	return read(l.t, s, err)
}

func (l *lab) plan(cell, hash string) (paths []string, now, layer string) {
	l.t.Helper()
	s, err := l.client().MergePlan(context.Background(), connect.NewRequest(&skepv1.MergePlanRequest{Cell: cell, Hash: hash, Ticket: l.roots()}))
	return read(l.t, s, err)
}

// fetch takes the layer that the daemon left, and hangs up on it.
func (l *lab) fetch(ticket string) {
	l.t.Helper()
	b, err := handover.Fetch(filepath.Join(l.config.Run, "fd.sock"), ticket)
	if err != nil {
		l.t.Fatal(err)
	}
	b.Close()
}

func TestDifferenceIsShownMergedAndRecorded(t *testing.T) {
	l := newLab(t).start()
	l.daemon.changes.Later = nil // the layer goes before the answer, and not some time after it
	ctx := context.Background()
	c := l.changed()
	paths, hash, layer := l.diff(c.Id)
	if !slices.Equal(paths, []string{"added added"}) || len(hash) != 64 {
		t.Fatalf("got %v, %s", paths, hash)
	}
	l.fetch(layer)
	commit := &skepv1.MergeCommitRequest{Cell: c.Id, Hash: hash, Paths: [][]byte{[]byte(filepath.Join(l.work, "added"))}}
	if _, err := l.client().MergeCommit(ctx, connect.NewRequest(commit)); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a merge without a plan was recorded: %v", err)
	}
	_, _, layer = l.plan(c.Id, hash[:12])
	l.fetch(layer)
	other := &skepv1.MergeCommitRequest{Cell: c.Id, Hash: hash, Paths: [][]byte{[]byte("/etc/passwd")}}
	if _, err := l.client().MergeCommit(ctx, connect.NewRequest(other)); err == nil {
		t.Error("a path that is not in the difference was recorded as merged")
	}
	_, _, layer = l.plan(c.Id, hash)
	l.fetch(layer)
	r, err := l.client().MergeCommit(ctx, connect.NewRequest(commit))
	if err != nil || r.Msg.State != skepv1.CellState_CELL_STATE_MERGED {
		t.Fatalf("got %v, %v", r, err)
	}
	want := []string{
		"cell.declared", "cell.started", "cell.stopped", "diff.shown",
		"approval.decided", "approval.decided", "merge.applied",
	}
	if got := l.kinds(c.Id); !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
	if _, err := os.Stat(filepath.Join(l.config.State, "cells", c.Id, "layer")); !os.IsNotExist(err) {
		t.Errorf("the layer of a merged cell is left: %v", err)
	}
	s, err := l.client().Diff(ctx, connect.NewRequest(&skepv1.DiffRequest{Cell: c.Id, Ticket: l.roots()}))
	if err == nil {
		s.Receive()
		err = s.Err()
	}
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a merged cell has a difference: %v", err)
	}
}

func TestMovedDifferenceIsNotMerged(t *testing.T) {
	l := newLab(t).start()
	c := l.changed()
	_, hash, layer := l.diff(c.Id)
	l.fetch(layer)
	if err := os.WriteFile(filepath.Join(l.work, "added"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, now, layer := l.plan(c.Id, hash)
	l.fetch(layer)
	if now == hash {
		t.Fatal("the base moved, and the hash did not")
	}
	commit := &skepv1.MergeCommitRequest{Cell: c.Id, Hash: hash}
	if _, err := l.client().MergeCommit(context.Background(), connect.NewRequest(commit)); err == nil {
		t.Error("the old difference was recorded as merged")
	}
	if got := l.kinds(c.Id); slices.Contains(got, "approval.decided") || slices.Contains(got, "merge.applied") {
		t.Errorf("recorded %v", got)
	}
}

// What a caller has merged is recorded, though both it and skepd died before (S4).
func TestMergeIsRecordedByALaterSkepd(t *testing.T) {
	l := newLab(t).start()
	c := l.changed()
	_, hash, layer := l.diff(c.Id)
	l.fetch(layer)
	_, _, layer = l.plan(c.Id, hash)
	l.fetch(layer)
	l.stop()
	<-l.ended
	l.ended <- nil
	again := &lab{t: t, config: l.config, driver: l.driver, clock: l.clock, work: l.work}
	again.start()
	commit := &skepv1.MergeCommitRequest{Cell: c.Id, Hash: hash, Paths: [][]byte{[]byte(filepath.Join(l.work, "added"))}}
	for _, wrong := range []*skepv1.MergeCommitRequest{
		{Cell: c.Id, Hash: strings.Repeat("0", 64), Paths: commit.Paths}, {Cell: c.Id, Hash: hash, Paths: [][]byte{[]byte("/etc/passwd")}},
	} {
		if _, err := again.client().MergeCommit(t.Context(), connect.NewRequest(wrong)); err == nil {
			t.Errorf("%v was recorded", wrong)
		}
	}
	r, err := again.client().MergeCommit(t.Context(), connect.NewRequest(commit))
	if err != nil || r.Msg.State != skepv1.CellState_CELL_STATE_MERGED {
		t.Fatalf("got %v, %v", r, err)
	}
	if got := again.kinds(c.Id); got[len(got)-1] != "merge.applied" {
		t.Errorf("recorded %v", got)
	}
	// A caller that had no answer asks again, and may have died in between, too.
	if r, err = again.client().MergeCommit(t.Context(), connect.NewRequest(commit)); err != nil || r.Msg.State != skepv1.CellState_CELL_STATE_MERGED {
		t.Errorf("told again: %v, %v", r, err)
	}
	if got := again.kinds(c.Id); count(got, "merge.applied") != 1 {
		t.Errorf("recorded %v", got)
	}
}

func count(kinds []string, kind string) (n int) {
	for _, k := range kinds {
		if k == kind {
			n++
		}
	}
	return n
}

// A skepd that dies after it has recorded the end of a merge and before it has forgotten
// the plan finds it in the record when it is told again, and goes on from there.
func TestEndOfAMergeIsRecordedOnce(t *testing.T) {
	for name, tell := range map[string]func(*lab, string, string) error{
		"merge.applied": func(l *lab, cell, hash string) error {
			q := &skepv1.MergeCommitRequest{Cell: cell, Hash: hash, Paths: [][]byte{[]byte(filepath.Join(l.work, "added"))}}
			_, err := l.client().MergeCommit(t.Context(), connect.NewRequest(q))
			return err
		},
		"merge.refused": func(l *lab, cell, hash string) error {
			_, err := l.client().MergeAbort(t.Context(), connect.NewRequest(&skepv1.MergeAbortRequest{Cell: cell, Hash: hash, Reason: "no"}))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t).start()
			c := l.changed()
			_, hash, layer := l.diff(c.Id)
			l.fetch(layer)
			_, _, layer = l.plan(c.Id, hash)
			l.fetch(layer)
			dir := filepath.Join(l.config.State, "cells", c.Id)
			before := map[string][]byte{}
			for _, file := range []string{"cell.json", "merge-plan"} {
				raw, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					t.Fatal(err)
				}
				before[file] = raw
			}
			if err := tell(l, c.Id, hash); err != nil {
				t.Fatal(err)
			}
			l.stop()
			<-l.ended
			l.ended <- nil
			// What was recorded is durable; what came after it is lost.
			for file, raw := range before {
				if err := os.WriteFile(filepath.Join(dir, file), raw, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			again := &lab{t: t, config: l.config, driver: l.driver, clock: l.clock, work: l.work}
			again.start()
			if err := tell(again, c.Id, hash); err != nil {
				t.Fatal(err)
			}
			if got := again.kinds(c.Id); count(got, name) != 1 {
				t.Errorf("recorded %v", got)
			}
			if _, err := os.Stat(filepath.Join(dir, "merge-plan")); !os.IsNotExist(err) {
				t.Errorf("the plan is left: %v", err)
			}
			if r, err := again.client().Get(t.Context(), connect.NewRequest(&skepv1.GetRequest{Cell: c.Id})); err != nil ||
				(r.Msg.State == skepv1.CellState_CELL_STATE_MERGED) != (name == "merge.applied") {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
}

// The same difference merged again after an undo is another merge: it is recorded.
func TestNextMergeOfTheSameHashIsRecorded(t *testing.T) {
	l := newLab(t).start()
	c := l.changed()
	_, hash, layer := l.diff(c.Id)
	l.fetch(layer)
	for range 2 {
		_, _, layer = l.plan(c.Id, hash)
		l.fetch(layer)
		for _, abort := range []*skepv1.MergeAbortRequest{
			{Cell: c.Id, Hash: strings.Repeat("0", 64), Reason: "another"}, // after it the record is looked at
			{Cell: c.Id, Hash: hash, Reason: "no"},
		} {
			if _, err := l.client().MergeAbort(t.Context(), connect.NewRequest(abort)); (err == nil) != (abort.Hash == hash) {
				t.Fatal(err)
			}
		}
	}
	if got := l.kinds(c.Id); count(got, "merge.refused") != 2 {
		t.Errorf("recorded %v", got)
	}
}

// TestSecondMergeIsTold: of two callers who merge one cell the second neither takes the
// first one's plan away, nor ends it, nor throws the layer away under it.
func TestSecondMergeIsTold(t *testing.T) {
	l := newLab(t).start()
	c := l.changed()
	_, hash, layer := l.diff(c.Id)
	l.fetch(layer)
	_, _, layer = l.plan(c.Id, hash)
	first, err := handover.Fetch(filepath.Join(l.config.Run, "fd.sock"), layer)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	s, err := l.client().MergePlan(t.Context(), connect.NewRequest(&skepv1.MergePlanRequest{Cell: c.Id, Hash: hash, Ticket: l.roots()}))
	if err == nil {
		for s.Receive() {
			t.Error("the second was answered")
		}
		err = s.Err()
	}
	for what, err := range map[string]error{"merge": err, "drop": l.drop(c.Id)} {
		if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "a merge of this cell is under way, by ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	commit := &skepv1.MergeCommitRequest{Cell: c.Id, Hash: hash, Paths: [][]byte{[]byte(filepath.Join(l.work, "added"))}}
	r, err := l.client().MergeCommit(t.Context(), connect.NewRequest(commit))
	if err != nil || r.Msg.State != skepv1.CellState_CELL_STATE_MERGED {
		t.Errorf("the first one's end: %v, %v", r, err)
	}
	if got := l.kinds(c.Id); count(got, "approval.decided") != 1 || count(got, "merge.applied") != 1 {
		t.Errorf("recorded %v", got)
	}
}

// A cell is not dropped a second time while the layer of a merged one goes, which its
// caller does not wait for.
func TestDropBesideTheRestOfAMerge(t *testing.T) {
	l := newLab(t).start()
	c := l.changed()
	_, hash, layer := l.diff(c.Id)
	l.fetch(layer)
	_, _, layer = l.plan(c.Id, hash)
	var rest func()
	l.daemon.changes.Later = func(do func()) { rest = do }
	commit := &skepv1.MergeCommitRequest{Cell: c.Id, Hash: hash, Paths: [][]byte{[]byte(filepath.Join(l.work, "added"))}}
	if _, err := l.client().MergeCommit(t.Context(), connect.NewRequest(commit)); err != nil {
		t.Fatal(err)
	}
	l.fetch(layer) // he hangs up after the answer
	dir := filepath.Join(l.config.State, "cells", c.Id, "layer")
	for range 2 {
		if err := l.drop(c.Id); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the rest was removed by two: %v", err)
		}
	}
	rest()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the layer of a merged cell is left: %v", err)
	}
}

// A caller who goes in the middle of his merge leaves the cell to the next at once.
func TestMergeAfterOneWhoWent(t *testing.T) {
	l := newLab(t).start()
	c := l.changed()
	_, hash, layer := l.diff(c.Id)
	l.fetch(layer)
	for range 3 {
		_, _, layer = l.plan(c.Id, hash)
		l.fetch(layer)
	}
	if err := l.drop(c.Id); err != nil {
		t.Error(err)
	}
}

func (l *lab) drop(cell string) error {
	_, err := l.client().Drop(context.Background(), connect.NewRequest(&skepv1.DropRequest{Cell: cell}))
	return err
}

func TestAbortedMergeIsRecordedAndLeavesTheLayer(t *testing.T) {
	l := newLab(t).start()
	c := l.changed()
	_, hash, layer := l.diff(c.Id)
	l.fetch(layer)
	_, _, layer = l.plan(c.Id, hash)
	l.fetch(layer)
	abort := &skepv1.MergeAbortRequest{Cell: c.Id, Hash: hash, Reason: "disk full"}
	if _, err := l.client().MergeAbort(context.Background(), connect.NewRequest(abort)); err != nil {
		t.Fatal(err)
	}
	if got := l.kinds(c.Id); got[len(got)-1] != "merge.refused" {
		t.Errorf("recorded %v", got)
	}
	if _, again, layer := l.diff(c.Id); again != hash {
		t.Errorf("the difference is %s, was %s", again, hash)
	} else {
		l.fetch(layer)
	}
	if r, err := l.client().Drop(context.Background(), connect.NewRequest(&skepv1.DropRequest{Cell: c.Id})); err != nil || r.Msg.State != skepv1.CellState_CELL_STATE_DROPPED {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestDifferenceNeedsTheCallersRoots(t *testing.T) {
	l := newLab(t).start()
	c := l.changed()
	s, err := l.client().Diff(context.Background(), connect.NewRequest(&skepv1.DiffRequest{Cell: c.Id}))
	if err == nil {
		s.Receive()
		err = s.Err()
	}
	if err == nil || !strings.Contains(err.Error(), "no descriptor came") {
		t.Errorf("got %v", err)
	}
}

func TestBoxThatDiesEndsTheCell(t *testing.T) {
	l := newLab(t).start()
	stream, err := l.client().Run(context.Background(), connect.NewRequest(l.request("", "/bin/sleep", "600")))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var c *skepv1.Cell
	for stream.Receive() {
		if c = stream.Msg().Cell; c.GetState() == skepv1.CellState_CELL_STATE_RUNNING {
			l.driver.KillBoxes()
			go l.turnUntilEnded(boxGrace)
		}
	}
	if c.GetCause() != "boundary-died" || c.GetExitCode() != ending.Failed {
		t.Errorf("got %v (%v)", c, stream.Err())
	}
}

func TestDiskBudgetEndsTheCell(t *testing.T) {
	l := newLab(t).start()
	q := l.request("budget: {disk: 1MiB}\n", "/bin/sh", "-c", "head -c 4194304 /dev/zero > big; sleep 600")
	stream, err := l.client().Run(context.Background(), connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var c *skepv1.Cell
	for stream.Receive() {
		if c = stream.Msg().Cell; c.GetState() == skepv1.CellState_CELL_STATE_RUNNING {
			go l.turnUntilEnded(time.Second)
		}
	}
	if c.GetCause() != "budget: disk" || c.ExitCode != ending.Budget || c.Peak < 1<<20 {
		t.Errorf("got %v (%v)", c, stream.Err())
	}
}

// turnUntilEnded turns the clock until no cell lives: what is to happen after the
// step is armed in its own time.
func (l *lab) turnUntilEnded(step time.Duration) {
	for l.daemon.busy() {
		l.clock.turn(step)
		<-time.After(5 * time.Millisecond) // real time for what was woken
	}
}
