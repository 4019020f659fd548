package tree

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"skep.dev/skep/internal/sys"
)

func heldOf(t *testing.T, dir string) int64 {
	t.Helper()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	n, err := Held(root, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestHeldCountsWhatTheDiskHolds(t *testing.T) {
	dir := t.TempDir()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	held := func() int64 {
		t.Helper()
		n, err := Held(root, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := held()
	file := filepath.Join(dir, "a", "b", "file")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(file, filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	if grown := held() - before; grown < 1<<20 || grown > 3<<19 {
		t.Errorf("a MiB of two names takes %d bytes", grown)
	}
	hole, err := os.Create(filepath.Join(dir, "hole"))
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	if err := hole.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if grown := held() - before; grown > 2<<20 {
		t.Errorf("a hole and a link take %d bytes", grown)
	}
	stop := errors.New("stop")
	if _, err := Held(root, func() error { return stop }); !errors.Is(err, stop) {
		t.Errorf("it goes on: %v", err)
	}
}

// TestHeldCountsInodes: a file without a byte takes one, of which a filesystem has only
// so many.
func TestHeldCountsInodes(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := heldOf(t, dir); n < 301*sys.InodeSize {
		t.Errorf("300 empty files take %d bytes", n)
	}
}

// TestHeldGoesAnyWayDown: the depth of a tree costs no descriptor for each level, and is
// longer than a path can be.
func TestHeldGoesAnyWayDown(t *testing.T) {
	const levels = 6000
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(Empty(root), root.Close()); err != nil {
			t.Error(err)
		}
	})
	at := root
	for range levels {
		if err := sys.MakeChild(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		below, err := sys.OpenDirBeneath(at, "d")
		if err != nil {
			t.Fatal(err)
		}
		if at != root {
			_ = at.Close()
		}
		at = below
	}
	_ = at.Close()
	open := 0
	n, err := Held(root, func() error {
		fds, err := os.ReadDir("/proc/self/fd")
		open = max(open, len(fds))
		return err
	})
	if err != nil || n < levels*sys.InodeSize {
		t.Errorf("%d levels take %d bytes (%v)", levels, n, err)
	}
	if open > 100 {
		t.Errorf("it held %d descriptors", open)
	}
}
