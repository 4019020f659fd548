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

// TestChangedFollowsNothing: a link in a layer leads the count nowhere.
func TestChangedFollowsNothing(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	put(t, 1, outside, "one")
	put(t, 1, outside, "two")
	put(t, 1, dir, "0", "upper", "file")
	if err := os.Symlink(outside, filepath.Join(dir, "0", "upper", "link")); err != nil {
		t.Fatal(err)
	}
	if n := Changed(dir); n != 2 {
		t.Errorf("%d files, want 2", n)
	}
	if err := os.Mkdir(filepath.Join(dir, "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "1", "upper")); err != nil {
		t.Fatal(err)
	}
	if n := Changed(dir); n != -1 {
		t.Errorf("%d files, want none counted", n)
	}
}
