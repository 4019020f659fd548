package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"skep.dev/skep/internal/sys/durable"
)

// A file that cannot be replaced stays as it was, and nothing is left beside it.
func TestReplaceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, content := range []string{"longer before", "after"} {
		if err := durable.ReplaceFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := os.Mkdir(path+".d", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.ReplaceFile(path+".d", []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if _, err := os.Lstat(path + ".d.new"); !os.IsNotExist(err) {
		t.Errorf("the unfinished file is left: %v", err)
	}
}

func TestAllocate(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := durable.Allocate(f, 1<<16); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	if err := durable.Sync(f); err != nil {
		t.Fatal(err)
	}
}
