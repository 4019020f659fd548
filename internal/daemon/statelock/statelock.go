// Package statelock lets one skepd have a state directory.
//
// Its law: two never have it at once, and the kernel gives it back when one dies (D10).
package statelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skep.dev/skep/internal/sys"
)

// Take takes the state directory by its file path, or fails if another daemon has had it for
// as long as wait. The lock goes with the file.
func Take(path string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("take the state directory: %w", err)
	}
	err = sys.LockFile(f)
	if wait > 0 {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		late := time.After(wait)
		for over := false; errors.Is(err, sys.ErrLocked) && !over; err = sys.LockFile(f) {
			select {
			case <-tick.C:
			case <-late:
				over = true
			}
		}
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, sys.ErrLocked) {
		return nil, fmt.Errorf("another skepd has %s: stop it, or give this one its own --state", filepath.Dir(path))
	}
	return nil, fmt.Errorf("take the state directory: %w", err)
}
