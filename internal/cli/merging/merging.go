// Package merging remembers, in the user's own state, a merge or an undo that skepd has
// not been told the end of.
//
// Its laws:
//   - What is remembered is on the disk before the tree is touched, and forgotten only
//     when skepd has it.
//   - Whoever merges holds its file locked: one that nobody holds is of a process that died.
package merging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"skep.dev/skep/internal/sys"
)

// Merge is one merge as skepd has to hear of it.
type Merge struct {
	Cell  string    `json:"cell"`
	Hash  string    `json:"hash"`  // in full
	State string    `json:"state"` // the state directory of the skepd that approved it
	Paths [][]byte  `json:"paths"` // what it writes; none of an undo
	At    time.Time `json:"at"`    // before it began
	Undo  bool      `json:"undo,omitempty"`
}

// fileName is one for what a cell can have under way.
func (m *Merge) fileName() string {
	if m.Undo {
		return "undo-" + m.Cell
	}
	return m.Cell
}

// Pending is a remembered merge that this process holds.
type Pending struct {
	Merge
	file *os.File
	path string
}

// largest bounds what is read, in bytes.
const largest = 1 << 30

func dirOf(own string) string { return filepath.Join(own, "merging") }

// Begin remembers a merge and holds it. own is the user's own state directory.
func Begin(own string, m Merge) (_ *Pending, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("remember the merge: %w", err)
		}
	}()
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dirOf(own), 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dirOf(own), m.fileName())
	f, err := os.CreateTemp(dirOf(own), ".new-")
	if err != nil {
		return nil, err
	}
	if err = sys.LockFile(f); err == nil {
		_, err = f.Write(raw)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return &Pending{Merge: m, file: f, path: path}, nil
}

// End forgets the merge: skepd knows how it ended.
func (p *Pending) End() error {
	defer p.Release()
	if err := os.Remove(p.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the merge: %w", err)
	}
	return nil
}

// Release leaves the merge to a later command.
func (p *Pending) Release() { _ = p.file.Close() }

// Left are the merges of processes that died, for the skepd of this state directory.
// The caller ends or releases each. A file that cannot be read is an error, and the
// others are returned with it.
func Left(own, state string) (left []*Pending, err error) {
	entries, err := os.ReadDir(dirOf(own))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for interrupted merges: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dirOf(own), e.Name())
		if e.Name()[0] == '.' {
			continue // its process died before it had merged anything, or is about to rename it
		}
		p, err := take(path)
		switch {
		case errors.Is(err, sys.ErrLocked) || errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, fmt.Errorf("look at an interrupted merge: %w", err))
		case p.State != state:
			p.Release()
		default:
			left = append(left, p)
		}
	}
	return left, errors.Join(errs...)
}

func take(path string) (_ *Pending, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	p := &Pending{file: f, path: path}
	defer func() {
		if err != nil {
			p.Release()
		}
	}()
	if err := sys.LockFile(f); err != nil {
		return nil, err
	}
	// It may have been ended, or begun anew, before we had the lock.
	if now, err := os.Stat(path); err != nil {
		return nil, err
	} else if held, err := f.Stat(); err != nil || !os.SameFile(now, held) {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	raw, err := io.ReadAll(io.LimitReader(f, largest))
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&p.Merge); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}
