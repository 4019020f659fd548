package tree

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
	deep := dir
	for range maxDeep + 2 {
		deep += "/d"
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Held(root, func() error { return nil }); err == nil {
		t.Error("a tree of any depth is held open")
	}
}
