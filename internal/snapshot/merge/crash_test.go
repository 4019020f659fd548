package merge

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/snapshot/layer"
	"skep.dev/skep/internal/snapshot/layertest"
	"skep.dev/skep/internal/sys"
)

// crashVariable holds "N\nbase\nstate\nhash" for a child that merges and kills
// itself at step N.
const crashVariable = "SKEP_MERGE_CRASH"

func crashChild() {
	parts := strings.SplitN(os.Getenv(crashVariable), "\n", 4)
	n, _ := strconv.Atoi(parts[0])
	conn, err := sys.Inherited(3, "layer")
	if err != nil {
		os.Exit(3)
	}
	dir, err := os.Open(parts[1])
	if err != nil {
		os.Exit(3)
	}
	_, err = Apply(context.Background(), Request{
		Roots: []Root{{Path: parts[1], Dir: dir}}, Layer: layer.NewClient(conn, 1), Judge: anything,
		Hash: parts[3], StateDir: parts[2],
		Step: func(string) error {
			if n--; n == 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil
		},
	})
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(2)
	}
	os.Exit(0)
}

// mergeKilledAt merges in a child that dies at step n; false if it lived.
func (f *fixture) mergeKilledAt(n int, hash string) (killed bool) {
	f.t.Helper()
	ours, theirs, err := sys.SeqpacketPair()
	must(f.t, err)
	f.cell.ServeOn(f.t, f.base, f.layer, theirs)
	theirs.Close()
	self, _ := os.Executable()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), crashVariable+"="+strings.Join([]string{strconv.Itoa(n), f.base, f.state, hash}, "\n"))
	cmd.ExtraFiles = []*os.File{ours}
	out, err := cmd.CombinedOutput()
	ours.Close()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		f.t.Fatalf("step %d: %v: %s", n, err, out)
	}
	return false
}

// The law of the package: kill -9 at every step, then recovery, and the tree is
// exactly before or exactly after, with no trace of the merge in it.
func TestKillAtEveryStep(t *testing.T) {
	layertest.Roles(t, func(t *testing.T) {
		for name, state := range states(t) {
			t.Run(name, func(t *testing.T) { killAtEveryStep(t, state) })
		}
	})
}

// states are where the user's state may be: on the filesystem of the tree, or on another,
// where old contents are copied.
func states(t *testing.T) map[string]func(*fixture) {
	all := map[string]func(*fixture){"beside the tree": func(*fixture) {}}
	other, err := os.MkdirTemp("/dev/shm", "skep-merge-")
	if err != nil {
		t.Logf("no other filesystem: %v", err)
		return all
	}
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	all["elsewhere"] = func(f *fixture) { f.state = filepath.Join(other, "state") }
	return all
}

func killAtEveryStep(t *testing.T, state func(*fixture)) {
	f := newFixture(t, hardBase(), hardCell())
	state(f)
	before, hash := f.look(), f.diff().Hash
	undone, finished := 0, 0
	for n := 1; f.mergeKilledAt(n, hash); n++ {
		got, err := Recover(f.state)
		must(t, err)
		now := f.look()
		switch {
		case difference(now, before) == "":
			undone++
			if len(got) > 0 && got[0].Finished {
				t.Errorf("step %d: undone and called finished", n)
			}
		case difference(now, f.view) == "":
			finished++
			must(t, Undo(context.Background(), f.state, hash, nil, nil))
			same(t, "taken back after step "+strconv.Itoa(n), f.look(), before)
			f.reset()
		default:
			t.Fatalf("step %d: neither before nor after:\n%s", n, difference(now, before))
		}
	}
	same(t, "whole merge", f.look(), f.view)
	if undone < 40 || finished < 2 {
		t.Errorf("%d undone, %d finished: the steps are not all there", undone, finished)
	}
	t.Logf("%d undone, %d finished", undone, finished)
}

// A crash of the recovery, at each of its steps, after a crash at each step of
// the merge: again and again until one recovery lives. In one process: a panic
// changes nothing more, as a kill would.
func TestCrashDuringRecovery(t *testing.T) {
	f := newFixture(t, hardBase(), hardCell())
	before, hash := f.look(), f.diff().Hash
	for n := 1; crashes(func(step func(string) error) { _, _ = f.apply(hash, step) }, n); n += 3 {
		for m := 1; crashes(func(step func(string) error) {
			_, err := recoverWith(f.state, step)
			must(t, err)
		}, m); m++ {
			if m > 500 {
				t.Fatal("recovery never ends")
			}
		}
		now := f.look()
		if difference(now, f.view) == "" {
			f.reset()
		} else if d := difference(now, before); d != "" {
			t.Fatalf("step %d: neither before nor after:\n%s", n, d)
		}
	}
}

// The same for taking a merge back.
func TestCrashDuringUndo(t *testing.T) {
	f := newFixture(t, hardBase(), hardCell())
	before, hash := f.look(), f.diff().Hash
	_, err := f.apply(hash, nil)
	must(t, err)
	for n := 1; ; n++ {
		begin := time.Now()
		crashed := crashes(func(step func(string) error) {
			must(t, Undo(context.Background(), f.state, hash, nil, step))
		}, n)
		_, err := Recover(f.state)
		must(t, err)
		now := f.look()
		undone, err := Undone(f.state, hash, begin)
		must(t, err)
		if undone != (difference(now, before) == "") {
			t.Errorf("step %d: told as undone: %v", n, undone)
		}
		if difference(now, before) == "" {
			if !crashed {
				return
			}
			if _, err := Undoable(f.state, hash); err == nil {
				t.Fatalf("step %d: taken back and still there", n)
			}
			_, err = f.apply(hash, nil)
			must(t, err)
		} else if d := difference(now, f.view); d != "" {
			t.Fatalf("step %d: neither before nor after:\n%s", n, d)
		}
	}
}

// crashes runs do and panics at its step n; false if it ended before.
func crashes(do func(step func(string) error), n int) (crashed bool) {
	type crash struct{}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case crash:
			crashed = true
		default:
			panic(r)
		}
	}()
	do(func(string) error {
		if n--; n == 0 {
			panic(crash{})
		}
		return nil
	})
	return false
}
