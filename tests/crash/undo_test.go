package crash

import (
	"testing"
	"time"
)

// TestKilledUndoIsRecordedOnce kills skep while it takes a merge back: once the next command
// of this user ran, the tree is exactly as before or exactly as merged, and the record says
// which, once (S4, D3).
func TestKilledUndoIsRecordedOnce(t *testing.T) {
	r := set(t)
	rng := seed(t)
	lasts := r.undoOnce("whole", func(*started) {}).lasted
	times := 8
	if soak() {
		times = 40
	}
	was := map[bool]int{}
	for i := range times {
		delay := time.Duration((0.2 + 0.9*rng.Float64()) * float64(lasts))
		staged := i%2 == 0
		if staged {
			delay = time.Duration(rng.IntN(8)) * time.Millisecond
		}
		u := r.undoOnce("u"+string(rune('a'+i%26)), func(s *started) {
			if staged {
				r.await("the staging", func() bool { return s.ended() || r.staging() })
			}
			select {
			case <-time.After(delay):
				_ = s.cmd.Process.Kill()
			case <-s.done:
			}
		})
		was[u.after]++
	}
	t.Logf("still merged %d times, taken back %d times", was[false], was[true])
}

// undoOnce merges what a cell changed and takes it back, harmed by harm, and looks.
func (r *rig) undoOnce(name string, harm func(*started)) mergeEnd {
	r.t.Helper()
	r.skep("run", "--yes", "--quiet", "--name", name, "--", "/bin/sh", "-c", change, "sh", name)
	shown, _ := r.skep("diff", name)
	h := hash.FindString(shown)
	before := r.content()
	r.skep("merge", name, h)
	merged := r.content()
	id := r.named(name).ID
	begin := time.Now()
	s := r.start("merge", "--undo", h)
	harm(s)
	s.wait(r.t)
	end := mergeEnd{lasted: time.Since(begin)}
	r.skep("run", "--yes", "--quiet", "--", "/bin/true") // the next command of this user
	switch now := r.content(); now {
	case before:
		end.after = true
		r.undone(id, 1)
		if code := r.start("merge", "--undo", h).wait(r.t); code == 0 {
			r.t.Errorf("the merge of %s is taken back twice", name)
		}
	case merged:
		r.undone(id, 0)
		r.skep("merge", "--undo", h)
		if now := r.content(); now != before {
			r.t.Errorf("the merge of %s, taken back again:\n%s", name, difference(before, now))
		}
	default:
		r.t.Errorf("the undo of %s is half done:\nfrom before:\n%sfrom merged:\n%s", name, difference(before, now), difference(merged, now))
	}
	r.undone(id, 1)
	r.list()
	r.verify()
	r.left()
	return end
}

// undone demands that the record has that many ends of an undo that was approved.
func (r *rig) undone(cell string, want int) {
	r.t.Helper()
	got, approved := 0, 0
	for _, e := range r.entries()[cell] {
		switch {
		case e.Kind == "approval.decided" && e.Body.Proposal == "undo "+cell:
			approved++
		case e.Kind == "merge.applied" && e.Body.Undo:
			got++
		}
	}
	if got != want || got > approved {
		r.t.Errorf("cell %s: %d undos are approved and %d are recorded as done, want %d", cell, approved, got, want)
	}
}
