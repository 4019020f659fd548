package merge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/layer"
	"skep.dev/skep/internal/snapshot/layertest"
	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/sys"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashVariable) != "" {
		crashChild()
	}
	layertest.Main(m)
}

type op = layertest.Op

func anything(int, string) bool { return true }

// fixture is a base, a layer over it, and the user's state.
type fixture struct {
	t       *testing.T
	cell    *layertest.Cell
	baseOps []op
	base    string
	layer   string
	state   string
	view    layertest.View // what the cell sees
}

func newFixture(t *testing.T, baseOps, cellOps []op) *fixture {
	t.Helper()
	f := &fixture{t: t, cell: layertest.Start(t), baseOps: baseOps}
	root := fastDir(t)
	f.base, f.layer, f.state = filepath.Join(root, "base"), filepath.Join(root, "layer"), filepath.Join(root, "state")
	f.reset()
	view, failed, err := f.cell.Run(f.base, f.layer, cellOps)
	must(t, err)
	for i, answer := range failed {
		if answer != "" {
			t.Fatalf("%s: %s", cellOps[i], answer)
		}
	}
	f.view = view
	t.Cleanup(func() { open(root) })
	return f
}

// open makes a tree removable.
func open(root string) {
	_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}

// reset makes the base anew, as it was before the cell ran, and forgets merges.
func (f *fixture) reset() {
	f.t.Helper()
	open(f.base)
	must(f.t, os.RemoveAll(f.base))
	must(f.t, os.RemoveAll(f.state))
	must(f.t, os.Mkdir(f.base, 0o755))
	must(f.t, layertest.Do(f.base, f.baseOps...))
	must(f.t, filepath.WalkDir(f.base, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return err
		}
		defer dir.Close()
		return sys.SetModTimeAt(dir, d.Name(), time.Unix(1_000_000_000, 7))
	}))
}

func (f *fixture) client() *layer.Client { return f.cell.Serve(f.t, f.base, f.layer) }

func (f *fixture) diff() *snapshot.Difference {
	f.t.Helper()
	c := f.client()
	defer c.Close()
	d, err := snapshot.Diff(context.Background(), c, []string{f.base}, anything)
	must(f.t, err)
	return d
}

func (f *fixture) look() layertest.View {
	f.t.Helper()
	v, err := f.cell.Look(f.base)
	must(f.t, err)
	return v
}

func (f *fixture) apply(hash string, step func(string) error, active ...string) (Result, error) {
	f.t.Helper()
	c := f.client()
	defer c.Close()
	dir, err := os.Open(f.base)
	must(f.t, err)
	defer dir.Close()
	return Apply(context.Background(), Request{
		Roots: []Root{{Path: f.base, Dir: dir}}, Layer: c, Judge: anything, Hash: hash,
		WithActive: active, StateDir: f.state, Step: step,
	})
}

// mustBe compares two views in all that a merge keeps; "" is equality.
func difference(got, want layertest.View) string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(want)) {
		g, w := got[path], want[path]
		if !g.SameButOwner(w) || (w.Type != snapshot.Dir && !g.ModTime.Equal(w.ModTime)) {
			out = append(out, fmt.Sprintf("%q: got %v %o %d %s %v %v, want %v %o %d %s %v %v", path,
				g.Type, g.Mode, g.Size, g.Target, g.Xattrs, g.ModTime, w.Type, w.Mode, w.Size, w.Target, w.Xattrs, w.ModTime))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[path]; !ok {
			out = append(out, fmt.Sprintf("%q: should not be", path))
		}
	}
	return strings.Join(out, "\n")
}

func same(t *testing.T, what string, got, want layertest.View) {
	t.Helper()
	if d := difference(got, want); d != "" {
		t.Errorf("%s:\n%s", what, d)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hardBase and hardCell hold one of everything that a merge must do.
func hardBase() []op {
	return []op{
		{Kind: "write", Path: "edited", To: "old", Mode: 0o644},
		{Kind: "write", Path: "script", To: "#!", Mode: 0o644},
		{Kind: "write", Path: "gone", To: "gone", Mode: 0o600},
		{Kind: "write", Path: "shut", To: "secret", Mode: 0o600},
		{Kind: "xattr", Path: "shut", To: "user.k=v"},
		{Kind: "chmod", Path: "shut", Mode: 0},
		{Kind: "write", Path: "becomes-dir", To: "f", Mode: 0o644},
		{Kind: "mkdir", Path: "becomes-file", Mode: 0o755},
		{Kind: "write", Path: "becomes-file/x", To: "x", Mode: 0o644},
		{Kind: "mkdir", Path: "removed", Mode: 0o755},
		{Kind: "mkdir", Path: "removed/sub", Mode: 0o755},
		{Kind: "write", Path: "removed/sub/f", To: "f", Mode: 0o444},
		{Kind: "chmod", Path: "removed/sub", Mode: 0o555},
		{Kind: "symlink", Path: "link", To: "edited"},
		{Kind: "symlink", Path: "loop", To: "loop"},
		{Kind: "mkdir", Path: "closed", Mode: 0o755},
		{Kind: "write", Path: "closed/f", To: "f", Mode: 0o644},
		{Kind: "chmod", Path: "closed", Mode: 0o555},
		{Kind: "mkdir", Path: "mode", Mode: 0o755},
	}
}

func hardCell() []op {
	return []op{
		{Kind: "append", Path: "edited", To: " and new"},
		{Kind: "xattr", Path: "edited", To: "user.note=kept"},
		{Kind: "mtime", Path: "edited", Size: 1_100_000_000},
		{Kind: "chmod", Path: "script", Mode: 0o755},
		{Kind: "remove", Path: "gone"},
		{Kind: "remove", Path: "shut"},
		{Kind: "remove", Path: "becomes-dir"},
		{Kind: "mkdir", Path: "becomes-dir", Mode: 0o755},
		{Kind: "write", Path: "becomes-dir/inner", To: "inner", Mode: 0o600},
		{Kind: "removeall", Path: "becomes-file"},
		{Kind: "write", Path: "becomes-file", To: "now a file", Mode: 0o644},
		{Kind: "chmod", Path: "removed/sub", Mode: 0o755},
		{Kind: "removeall", Path: "removed"},
		{Kind: "remove", Path: "link"},
		{Kind: "symlink", Path: "link", To: "/etc/passwd"},
		{Kind: "chmod", Path: "closed", Mode: 0o755},
		{Kind: "write", Path: "closed/new", To: "n", Mode: 0o644},
		{Kind: "chmod", Path: "closed", Mode: 0o555},
		{Kind: "chmod", Path: "mode", Mode: 0o700},
		{Kind: "mkdir", Path: "new", Mode: 0o755},
		{Kind: "mkdir", Path: "new/empty", Mode: 0o755},
		{Kind: "write", Path: "new/odd\n\xff.wh.x", To: "odd", Mode: 0o644},
		{Kind: "sparse", Path: "new/sparse", To: "head", Size: 8 << 20},
		{Kind: "write", Path: "new/one", To: "linked", Mode: 0o644},
		{Kind: "link", Path: "new/one", To: "new/two"},
		{Kind: "mkdir", Path: "new/locked", Mode: 0o755},
		{Kind: "write", Path: "new/locked/f", To: "f", Mode: 0o400},
		{Kind: "chmod", Path: "new/locked", Mode: 0o500},
	}
}

func TestMergeMakesTheTreeWhatTheCellSaw(t *testing.T) {
	layertest.Roles(t, func(t *testing.T) {
		f := newFixture(t, hardBase(), hardCell())
		before := f.look()
		hash := f.diff().Hash
		result, err := f.apply(hash[:snapshot.MinHashPrefix], nil)
		must(t, err)
		if len(result.LeftOut) != 0 || len(result.Merged) == 0 {
			t.Errorf("left out %v, merged %d", result.LeftOut, len(result.Merged))
		}
		same(t, "merged tree", f.look(), f.view)
		if d := f.diff(); len(d.Entries) != 0 {
			t.Errorf("after the merge %d differences stay: %q", len(d.Entries), d.Entries[0].Path)
		}
		var st, other syscall.Stat_t
		must(t, syscall.Stat(filepath.Join(f.base, "new/sparse"), &st))
		if st.Blocks*512 > 1<<20 {
			t.Errorf("the hole was filled: %d blocks", st.Blocks)
		}
		must(t, syscall.Stat(filepath.Join(f.base, "new/one"), &st))
		must(t, syscall.Stat(filepath.Join(f.base, "new/two"), &other))
		if st.Ino != other.Ino {
			t.Error("a hard link of the layer became two files")
		}
		must(t, Undo(context.Background(), f.state, hash, nil, nil))
		same(t, "tree after undo", f.look(), before)
		if err := Undo(context.Background(), f.state, hash, nil, nil); err == nil {
			t.Error("a merge was taken back twice")
		}
	})
}

// What was edited after the merge stays, and the error names it and where its old content is.
func TestUndoNamesWhatChangedSince(t *testing.T) {
	f := newFixture(t, hardBase(), []op{{Kind: "append", Path: "edited", To: "cell"}})
	hash := f.diff().Hash
	_, err := f.apply(hash, nil)
	must(t, err)
	must(t, layertest.Do(f.base, op{Kind: "append", Path: "edited", To: "mine"}))
	before := f.look()
	err = Undo(context.Background(), f.state, hash, nil, nil)
	old := filepath.Join(mergesDir(f.state), hash, oldName, savedName(0, 0))
	want := filepath.Join(f.base, "edited") + " was changed since the merge; restore it as the merge left it, or take the old file from " + old
	if !errors.Is(err, tree.ErrMoved) || err.Error() != want {
		t.Fatalf("got  %v\nwant %s", err, want)
	}
	same(t, "tree after a refused undo", f.look(), before)
	if _, err := os.Stat(old); err != nil {
		t.Error(err)
	}
}

func TestMovedBaseOrLayerIsRefused(t *testing.T) {
	f := newFixture(t, hardBase(), hardCell())
	hash := f.diff().Hash
	must(t, layertest.Do(f.base, op{Kind: "append", Path: "edited", To: "!"}))
	before := f.look()
	_, err := f.apply(hash, nil)
	var moved *MovedError
	if !errors.As(err, &moved) || moved.Difference.Hash == hash {
		t.Fatalf("got %v, want a new difference", err)
	}
	same(t, "tree after a refused merge", f.look(), before)
	if _, err := f.apply(moved.Difference.Hash[:8], nil); err == nil {
		t.Error("eight digits were enough")
	}
}

// A host edit after the difference was computed once more, at the last moment,
// is found by looking at what came out of the tree. The edit stays.
func TestEditDuringMergeUndoesAll(t *testing.T) {
	for _, victim := range []string{"edited", "removed/late", "becomes-dir", "new"} {
		f := newFixture(t, hardBase(), hardCell())
		edit := func() error {
			return layertest.Do(f.base, op{Kind: "write", Path: victim, To: "by the host", Mode: 0o644})
		}
		var want layertest.View
		_, err := f.apply(f.diff().Hash, func(name string) error {
			if name != "rename" || want != nil {
				return nil
			}
			if err := edit(); err != nil {
				return err
			}
			want = f.look()
			for path := range want {
				if strings.HasPrefix(path, ".skep-merge-") {
					delete(want, path)
				}
			}
			return nil
		})
		if err == nil {
			t.Errorf("%s: merged over a host edit", victim)
		}
		want["closed"] = f.look()["closed"] // it was open during the look
		same(t, victim, f.look(), want)
		if got := f.look()["closed"].Mode; got != 0o555 {
			t.Errorf("closed has mode %o", got)
		}
	}
}

// Every step answers with an error once: a full disk, a missing right.
func TestErrorAtEveryStepLeavesTheTree(t *testing.T) {
	layertest.Roles(t, func(t *testing.T) {
		f := newFixture(t, hardBase(), hardCell())
		before, hash := f.look(), f.diff().Hash
		for n := 1; ; n++ {
			count := 0
			_, err := f.apply(hash, func(name string) error {
				if count++; count == n {
					return &os.PathError{Op: name, Path: "injected", Err: syscall.ENOSPC}
				}
				return nil
			})
			if count < n {
				must(t, err)
				same(t, "whole merge", f.look(), f.view)
				t.Logf("%d steps", n-1)
				return
			}
			// After "done" the tree is after, whatever tidying fails.
			_, recovered := Recover(f.state)
			must(t, recovered)
			if got := f.look(); difference(got, f.view) == "" {
				f.reset()
			} else if d := difference(got, before); d != "" || err == nil {
				t.Fatalf("step %d (%v):\n%s", n, err, d)
			}
		}
	})
}

// TestOldFileThatIsStillWritten: what somebody writes into an old file after the merge
// took it away is in no copy of it, so that the merge can be taken back. A file that
// nobody can write to is the copy itself: a large one costs nothing.
func TestOldFileThatIsStillWritten(t *testing.T) {
	f := newFixture(t, hardBase(), hardCell())
	before, hash := f.look(), f.diff().Hash
	inode := func(path string) uint64 {
		info, err := os.Lstat(path)
		must(t, err)
		return info.Sys().(*syscall.Stat_t).Ino
	}
	was := inode(filepath.Join(f.base, "edited"))
	late, err := os.OpenFile(filepath.Join(f.base, "edited"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer late.Close()
	for range 2 {
		_, err = f.apply(hash, nil)
		must(t, err)
		_, err = late.WriteString("a log line")
		must(t, err)
		saved, err := filepath.Glob(filepath.Join(mergesDir(f.state), hash, oldName, "*"))
		must(t, err)
		if moved := slices.ContainsFunc(saved, func(path string) bool { return inode(path) == was }); moved {
			t.Error("a file that is open for writing was taken for the copy")
		}
		must(t, Undo(context.Background(), f.state, hash, nil, nil))
		same(t, "taken back", f.look(), before)
	}
	must(t, late.Close())
	was = inode(filepath.Join(f.base, "edited"))
	_, err = f.apply(hash, nil)
	must(t, err)
	saved, err := filepath.Glob(filepath.Join(mergesDir(f.state), hash, oldName, "*"))
	must(t, err)
	if moved := slices.ContainsFunc(saved, func(path string) bool { return inode(path) == was }); !moved {
		t.Error("a file of ours alone was copied")
	}
}

func TestHardLinkOutsideKeepsItsBytes(t *testing.T) {
	f := newFixture(t, hardBase(), hardCell())
	outside := filepath.Join(filepath.Dir(f.base), "outside")
	must(t, os.Link(filepath.Join(f.base, "edited"), outside))
	must(t, os.Link(filepath.Join(f.base, "shut"), outside+"2"))
	_, err := f.apply(f.diff().Hash, nil)
	must(t, err)
	if content, _ := os.ReadFile(outside); string(content) != "old" {
		t.Errorf("outside reads %q", content)
	}
	if info, err := os.Lstat(outside + "2"); err != nil || info.Mode().Perm() != 0 {
		t.Errorf("the other link: %v, %v", info.Mode(), err)
	}
}

// A directory on the way becomes a symlink to elsewhere just before the rename.
func TestMergeFollowsNoLinkOut(t *testing.T) {
	f := newFixture(t, []op{{Kind: "mkdir", Path: "d", Mode: 0o755}}, []op{{Kind: "write", Path: "d/f", To: "x", Mode: 0o644}})
	elsewhere := t.TempDir()
	_, err := f.apply(f.diff().Hash, func(name string) error {
		if name == "rename" {
			return errors.Join(os.Remove(filepath.Join(f.base, "d")), os.Symlink(elsewhere, filepath.Join(f.base, "d")))
		}
		return nil
	})
	if err == nil {
		t.Error("merged through a symlink")
	}
	if left, _ := os.ReadDir(elsewhere); len(left) != 0 {
		t.Errorf("outside got %v", left)
	}
}

func TestHeldRefusedAndSpecialAreLeftOutWhole(t *testing.T) {
	base := []op{
		{Kind: "mkdir", Path: ".git", Mode: 0o755}, {Kind: "write", Path: ".git/config", To: "c", Mode: 0o644},
		{Kind: "mkdir", Path: ".git/hooks", Mode: 0o755}, {Kind: "write", Path: ".git/HEAD", To: "h", Mode: 0o644},
		{Kind: "mkdir", Path: "old", Mode: 0o755}, {Kind: "mkdir", Path: "old/.vscode", Mode: 0o755},
		{Kind: "write", Path: "old/.vscode/tasks.json", To: "t", Mode: 0o644}, {Kind: "write", Path: "old/f", To: "f", Mode: 0o644},
	}
	cell := []op{
		{Kind: "write", Path: ".git/config", To: "evil", Mode: 0o644}, {Kind: "write", Path: ".git/hooks/pre-commit", To: "evil", Mode: 0o755},
		{Kind: "write", Path: ".git/HEAD", To: "new", Mode: 0o644}, {Kind: "removeall", Path: "old"}, {Kind: "fifo", Path: "pipe"},
		{Kind: "mkdir", Path: "sub", Mode: 0o755}, {Kind: "write", Path: "sub/.git", To: "gitdir: /x", Mode: 0o644},
		{Kind: "write", Path: "suid", To: "s", Mode: 0o6777},
	}
	f := newFixture(t, base, cell)
	result, err := f.apply(f.diff().Hash, nil)
	must(t, err)
	got := f.look()
	if got[".git/config"].Size != 1 || got["old/f"].Type == snapshot.Absent || got[".git/HEAD"].Size != 3 {
		t.Errorf("left out %v", result.LeftOut)
	}
	for _, path := range []string{".git/hooks/pre-commit", "pipe", "sub/.git"} {
		if _, ok := got[path]; ok {
			t.Errorf("%s was merged", path)
		}
	}
	if got["sub"].Type != snapshot.Dir || got["suid"].Mode != 0o755 {
		t.Errorf("sub is %v, suid has mode %o", got["sub"].Type, got["suid"].Mode)
	}
	_, err = f.apply(f.diff().Hash, nil, ".git/hooks", filepath.Join(f.base, "old"))
	must(t, err)
	got = f.look()
	if got[".git/hooks/pre-commit"].Type != snapshot.File || got["old"].Type != snapshot.Absent || got[".git/config"].Size != 1 {
		t.Error("--with-active did not merge exactly what it named")
	}
}

func TestUnjudgedPathsAreNeverMerged(t *testing.T) {
	f := newFixture(t, hardBase(), hardCell())
	before := f.look()
	c := f.client()
	dir, err := os.Open(f.base)
	must(t, err)
	defer dir.Close()
	req := Request{Roots: []Root{{Path: f.base, Dir: dir}}, Layer: c, Hash: f.diff().Hash, StateDir: f.state}
	result, err := Apply(context.Background(), req)
	must(t, err)
	same(t, "tree", f.look(), before)
	if len(result.Merged) != 0 {
		t.Errorf("merged %v without a judge", result.Merged)
	}
}

func TestImmutableFileRefusesAll(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chattr +i needs root")
	}
	for _, victim := range []string{"edited", "removed/sub/f", "gone"} {
		f := newFixture(t, hardBase(), hardCell())
		hash, before, path := f.diff().Hash, f.look(), filepath.Join(f.base, victim)
		if err := sys.SetImmutable(path, true); err != nil {
			t.Skipf("this filesystem knows no immutable files: %v", err)
		}
		_, err := f.apply(hash, nil)
		must(t, sys.SetImmutable(path, false))
		if err == nil {
			t.Errorf("%s: merged over an immutable file", victim)
		}
		same(t, victim, f.look(), before)
	}
}

// What has to be known before an undo is known before, or nothing is done.
func TestUndoIsToldBeforeItIsDone(t *testing.T) {
	f := newFixture(t, hardBase(), hardCell())
	if _, err := Undoable(f.state, strings.Repeat("0", 12)); err == nil {
		t.Error("something that was never merged can be taken back")
	}
	hash := f.diff().Hash
	_, err := f.apply(hash, nil)
	must(t, err)
	if full, err := Undoable(f.state, hash[:12]); full != hash || err != nil {
		t.Errorf("%s, %v", full, err)
	}
	after, no := f.look(), errors.New("not now")
	if err := Undo(context.Background(), f.state, hash, func() error { return no }, nil); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	same(t, "tree after an undo that was not to be", f.look(), after)
}

// While a merge runs, the recovery of another command leaves it alone.
func TestRecoverWaitsForNobody(t *testing.T) {
	state := t.TempDir()
	unlock, err := lock(state, true)
	must(t, err)
	dir := filepath.Join(mergesDir(state), "running")
	must(t, os.Mkdir(dir, 0o700))
	if got, err := Recover(state); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error("a running merge was cleared away")
	}
	unlock()
	_, err = Recover(state)
	must(t, err)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a merge without a plan stays: %v", err)
	}
}
