package sys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	held := func() bool {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		is, err := FileIsLocked(f)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	a, b := open(), open()
	if held() {
		t.Error("locked before anybody locked it")
	}
	if err := LockFile(a); err != nil {
		t.Fatal(err)
	}
	if err := LockFile(b); !errors.Is(err, ErrLocked) || !held() {
		t.Errorf("a second holder: %v", err)
	}
	_ = a.Close()
	if err := LockFile(b); err != nil {
		t.Errorf("after the first was closed: %v", err)
	}
}
