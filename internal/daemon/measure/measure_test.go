package measure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(t *testing.T, size int, parts ...string) {
	t.Helper()
	path := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestUsageCountsWhatTheDiskHolds(t *testing.T) {
	dir := t.TempDir()
	before := Usage(dir)
	put(t, 1<<20, dir, "a", "b", "file")
	if grown := Usage(dir) - before; grown < 1<<20 || grown > 2<<20 {
		t.Errorf("a MiB takes %d bytes", grown)
	}
	hole, err := os.Create(filepath.Join(dir, "hole"))
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	if err := hole.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	if used := Usage(dir); used > 3<<20 {
		t.Errorf("a hole takes %d bytes", used)
	}
	if used := Usage(filepath.Join(dir, "none")); used != 0 {
		t.Errorf("what is not there takes %d bytes", used)
	}
}

func TestChangedCountsLayersAlone(t *testing.T) {
	dir := t.TempDir()
	if n := Changed(dir); n != 0 {
		t.Errorf("no layer has %d files", n)
	}
	put(t, 1, dir, "0", "upper", "one")
	put(t, 1, dir, "0", "upper", "deep", "two")
	put(t, 1, dir, "12", "upper", "three")
	put(t, 1, dir, "0", "work", "not")
	put(t, 1, dir, "home", "upper", "not")
	if n := Changed(dir); n != 3 {
		t.Errorf("%d files, want 3", n)
	}
}
