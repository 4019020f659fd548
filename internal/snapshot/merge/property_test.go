package merge

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/layertest"
)

// soakVariable raises the number of hundreds of random trees per role.
const soakVariable = "SKEP_SOAK_TREES"

// Names that have broken other tools: not UTF-8, a newline, what looks like a
// whiteout of another union filesystem.
func drawPath(t *rapid.T, label string) string {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", ".wh.a", ".wh..wh..opq", "n\nl", "\xff\xfe"})
	path := name.Draw(t, label)
	for range rapid.IntRange(0, 2).Draw(t, label+" depth") {
		path = rapid.SampledFrom([]string{"a", "b", "d"}).Draw(t, label) + "/" + path
	}
	return path
}

func drawOp(t *rapid.T, kinds []string) op {
	o := op{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Path: drawPath(t, "path")}
	o.Mode = rapid.SampledFrom([]uint32{0, 0o400, 0o555, 0o600, 0o644, 0o700, 0o755, 0o777, 0o1777, 0o2755, 0o4755}).Draw(t, "mode")
	switch o.Kind {
	case "rename", "link":
		o.To = drawPath(t, "to")
	case "symlink":
		o.To = rapid.SampledFrom([]string{"a", "b", "../a", "/etc/passwd", ".", "n\nl"}).Draw(t, "target")
	case "write", "append", "sparse":
		o.To = rapid.StringN(0, 8, 8).Draw(t, "content")
		o.Size = rapid.SampledFrom([]int64{0, 3, 100_000}).Draw(t, "size")
	case "xattr":
		o.To = rapid.SampledFrom([]string{"user.a=1", "user.a=2", "user.a", "user.b=\x00"}).Draw(t, "attribute")
	case "mtime":
		o.Size = rapid.Int64Range(0, 2_000_000_000).Draw(t, "time")
	}
	return o
}

var (
	baseKinds = []string{"mkdir", "mkdir", "mkdir", "write", "write", "sparse", "symlink", "link", "chmod", "fifo", "xattr", "mtime"}
	cellKinds = append([]string{"append", "remove", "removeall", "rename", "rename"}, baseKinds...)
)

func drawOps(t *rapid.T, label string, kinds []string, most int) []op {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op { return drawOp(t, kinds) }), 0, most).Draw(t, label)
}

// plus is base with every entry applied: what the cell must see.
func plus(base layertest.View, d *snapshot.Difference, only map[string]bool) layertest.View {
	out := layertest.View{}
	for path, s := range base {
		out[path] = s
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		if only != nil && !only[d.FullPath(e)] {
			continue
		}
		if e.Layer.Type == snapshot.Absent {
			delete(out, e.Path)
			continue
		}
		s := e.Layer
		if only != nil {
			s.Mode = snapshot.MergedMode(e.Base, e.Layer)
		}
		out[e.Path] = s
	}
	return out
}

// The law of the whole: what a cell sees is its base plus the difference, and
// a merge makes the tree so; taking it back makes it as it was (S2, S4, S9).
func TestRandomTrees(t *testing.T) {
	hundreds := 1
	if n, err := strconv.Atoi(os.Getenv(soakVariable)); err == nil {
		hundreds = n
	}
	layertest.Roles(t, func(t *testing.T) {
		cell := layertest.Start(t)
		scratch := fastDir(t)
		n := 0
		for range hundreds {
			rapid.Check(t, func(rt *rapid.T) {
				n++
				root := filepath.Join(scratch, strconv.Itoa(n))
				defer func() { open(root); os.RemoveAll(root) }()
				randomTree(t, rt, cell, root)
			})
		}
	})
}

// fastDir is on a tmpfs where there is one, since each merge syncs its
// filesystem: thousands of them would measure the disk.
func fastDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "skep-trees-")
	if err == nil {
		t.Cleanup(func() { open(dir); os.RemoveAll(dir) })
		probe := filepath.Join(dir, "probe")
		if os.WriteFile(probe, nil, 0o600) == nil && layertest.Do(dir, op{Kind: "xattr", Path: "probe", To: "user.a=1"}) == nil {
			return dir
		}
	}
	return t.TempDir()
}

func randomTree(t *testing.T, rt *rapid.T, cell *layertest.Cell, root string) {
	f := &fixture{t: t, cell: cell, base: filepath.Join(root, "base"), layer: filepath.Join(root, "layer"), state: filepath.Join(root, "state")}
	check := func(what, difference string) {
		if difference != "" {
			rt.Fatalf("%s:\n%s", what, difference)
		}
	}
	for _, dir := range []string{root, f.base, f.layer} {
		must(t, os.Mkdir(dir, 0o755))
	}
	for _, o := range drawOps(rt, "base", baseKinds, 25) {
		_ = layertest.Do(f.base, o) // many are impossible, that is the point
	}
	if _, _, err := cell.Run(f.base, f.layer, drawOps(rt, "cell", cellKinds, 25)); err != nil {
		rt.Fatal(err)
	}
	// The base is live: the host goes on working, then the cell does.
	for _, o := range drawOps(rt, "host", cellKinds, 4) {
		_ = layertest.Do(f.base, o)
	}
	view, _, err := cell.Run(f.base, f.layer, drawOps(rt, "cell again", cellKinds, 8))
	if err != nil {
		rt.Fatal(err)
	}
	before, d := f.look(), f.diff()
	check("base plus difference is not what the cell sees", differenceAll(plus(before, d, nil), view))
	result, err := f.apply(d.Hash, nil)
	if err != nil {
		if !errors.Is(err, syscall.EACCES) || os.Geteuid() == 0 || !closedDirs(before) {
			rt.Fatal(err)
		}
		check("a refused merge changed the tree", difference(f.look(), before))
		return
	}
	if len(result.Merged)+len(result.LeftOut) != len(d.Entries) {
		rt.Fatalf("%d entries: %d merged, %d left out", len(d.Entries), len(result.Merged), len(result.LeftOut))
	}
	merged := map[string]bool{}
	for _, p := range result.Merged {
		merged[p.Path] = true
	}
	check("merged tree", difference(f.look(), plus(before, d, merged)))
	if len(merged) == 0 {
		return
	}
	if err := Undo(context.Background(), f.state, d.Hash, nil, nil); err != nil {
		rt.Fatal(err)
	}
	for path, s := range before {
		if s.Type == snapshot.File && merged[filepath.Join(f.base, path)] {
			s.Mode &= 0o777 // set-id and sticky bits are not given back
			before[path] = s
		}
	}
	check("tree after undo", difference(f.look(), before))
}

// differenceAll also compares owners and, since no merge was made, nothing of
// times: a file whose time alone changed is no difference (S3).
func differenceAll(got, want layertest.View) string {
	for _, view := range []layertest.View{got, want} {
		for path, s := range view {
			s.ModTime = want[path].ModTime
			view[path] = s
		}
	}
	for path, s := range want {
		if g := got[path]; g.UID != s.UID || g.GID != s.GID {
			return path + ": owner differs"
		}
	}
	return difference(got, want)
}

// closedDirs reports whether an ordinary owner is shut out of a directory.
func closedDirs(view layertest.View) bool {
	for _, s := range view {
		if s.Type == snapshot.Dir && s.Mode&0o700 != 0o700 {
			return true
		}
	}
	return false
}
