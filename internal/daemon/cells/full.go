package cells

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"skep.dev/skep/internal/sys/durable"
)

// droppedName is that of a record whose cell is dropped, whatever is written in it. A
// file is renamed in its directory where a full disk takes no other.
const droppedName = fileName + ".dropped"

// full tells whether an error says that a disk, or somebody's part of it, is full.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Drop makes a cell one that is dropped, on disk before it is told, also on a disk that is
// full: what the cell wrote is what fills it. The next [Store.Keep] that there is room for
// writes the record as it is.
func (s *Store) Drop(id string) (Record, error) {
	drop := func(r *Record) { r.State = Dropped }
	r, err := s.Change(id, drop)
	if !full(err) {
		return r, err
	}
	if err := s.mark(id); err != nil {
		return r, err
	}
	if err := s.Set(id, drop); err != nil {
		return r, err
	}
	s.mu.Lock()
	s.unkept[id] = true
	s.mu.Unlock()
	r, _ = s.Get(id)
	return r, nil
}

// mark renames a record to that of a dropped cell.
func (s *Store) mark(id string) error {
	s.mu.Lock()
	k := s.records[id]
	s.mu.Unlock()
	if k == nil {
		return ErrNone
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	dir := s.Dir(id)
	err := os.Rename(filepath.Join(dir, fileName), filepath.Join(dir, droppedName))
	if errors.Is(err, fs.ErrNotExist) { // it is marked
		_, err = os.Lstat(filepath.Join(dir, droppedName))
	}
	if err == nil {
		err = durable.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("mark cell %s as dropped: %w", id, err)
	}
	return nil
}

// readMarked reads the record of a cell that was dropped on a full disk, and says so in
// it if there is room now.
func readMarked(dir string) (*Record, error) {
	r, err := read(dir, droppedName)
	if err != nil {
		return nil, err
	}
	r.State = Dropped
	if err := write(dir, r); err != nil && !full(err) {
		return nil, err
	}
	return r, nil
}
