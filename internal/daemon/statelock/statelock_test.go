package statelock

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOneHasTheStateDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Take(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, wait := range []time.Duration{0, 30 * time.Millisecond} {
		if _, err := Take(path, wait); err == nil || !strings.Contains(err.Error(), "another skepd has") {
			t.Errorf("a second one has it after %v: %v", wait, err)
		}
	}
	waited := make(chan error)
	go func() {
		f, err := Take(path, time.Minute)
		if err == nil {
			err = f.Close()
		}
		waited <- err
	}()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("it was given back, and is not to be had: %v", err)
	}
	if _, err := Take(filepath.Join(path, "none"), 0); err == nil {
		t.Error("taken without a directory")
	}
}
