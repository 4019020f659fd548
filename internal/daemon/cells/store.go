package cells

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrNone and ErrAmbiguous say that a reference means no cell, or several.
var (
	ErrNone      = errors.New("no such cell")
	ErrAmbiguous = errors.New("means several cells")
)

// Store is all cells of one state directory.
type Store struct {
	dir string

	mu      sync.Mutex
	records map[string]*Record
	unkept  map[string]bool // ends that could not be written yet
}

// Open reads every record below dir, which it makes if it is not there. A
// directory without a record is the rest of a cell that was never declared: it is
// listed in rests.
func Open(dir string) (s *Store, rests []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("open cells: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open cells: %w", err)
	}
	s = &Store{dir: dir, records: map[string]*Record{}, unkept: map[string]bool{}}
	for _, e := range entries {
		if !e.IsDir() || !ValidID(e.Name()) {
			continue
		}
		// The rest of a write that a crash cut off.
		if err := removeIfThere(filepath.Join(dir, e.Name(), fileName+unfinished)); err != nil {
			return nil, nil, fmt.Errorf("open cells: %w", err)
		}
		r, err := read(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			rests = append(rests, e.Name())
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		s.records[r.ID] = r
	}
	return s, rests, nil
}

// Dir is the directory of one cell.
func (s *Store) Dir(id string) string { return filepath.Join(s.dir, id) }

// Add makes a cell's directory and its first record. A name that a cell which is
// not merged or dropped has is refused.
func (s *Store) Add(r Record) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.records {
		if r.Name != "" && other.Name == r.Name && (!other.State.Ended() || other.State == Stopped) {
			return fmt.Errorf("cell %s has the name %s: drop or merge it, or choose another", other.ID, r.Name)
		}
	}
	if err := os.Mkdir(s.Dir(r.ID), 0o700); err != nil {
		return fmt.Errorf("make directory of cell: %w", err)
	}
	if err := write(s.Dir(r.ID), &r); err != nil {
		return err
	}
	if err := syncDir(s.dir); err != nil {
		return fmt.Errorf("sync the directory of cells: %w", err)
	}
	s.records[r.ID] = &r
	for id := range s.unkept { // there is space again
		if write(s.Dir(id), s.records[id]) == nil {
			delete(s.unkept, id)
		}
	}
	return nil
}

// End is Change for the end of a cell, which is told even if it cannot be written: a
// process that has gone does not run. An error says that a crash before the next cell
// would lose it here; the ledger has it then.
func (s *Store) End(id string, edit func(*Record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.records[id]
	if old == nil {
		return ErrNone
	}
	changed := *old
	edit(&changed)
	s.records[id] = &changed
	if err := write(s.Dir(id), &changed); err != nil {
		s.unkept[id] = true
		return err
	}
	return nil
}

// Change edits a record and returns what it is now. On an error nothing changed.
func (s *Store) Change(id string, edit func(*Record)) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.records[id]
	if old == nil {
		return Record{}, ErrNone
	}
	changed := *old
	edit(&changed)
	if err := write(s.Dir(id), &changed); err != nil {
		return *old, err
	}
	delete(s.unkept, id)
	s.records[id] = &changed
	return changed, nil
}

// Count adds crossings to a record in memory; the next Change keeps them. The
// ledger has each of them, this is only their number.
func (s *Store) Count(id string, allowed, refused int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[id]; r != nil {
		changed := *r
		changed.Allowed += allowed
		changed.Refused += refused
		s.records[id] = &changed
	}
}

// Get is the record with that id.
func (s *Store) Get(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[id]
	if r == nil {
		return Record{}, false
	}
	return *r, true
}

// All lists the records, oldest first.
func (s *Store) All() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Record, 0, len(s.records))
	for _, r := range s.records {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Record) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// Find resolves what a person calls a cell: an id, a name, a unique prefix of at
// least four characters, or "last" (L19a). Of several cells of one name the
// newest is meant; the others were merged or dropped.
func (s *Store) Find(ref string) (Record, error) {
	all := s.All()
	if ref == "last" && len(all) > 0 {
		return all[len(all)-1], nil
	}
	if r, ok := s.Get(ref); ok {
		return r, nil
	}
	for i := len(all) - 1; i >= 0; i-- {
		if ref != "" && all[i].Name == ref {
			return all[i], nil
		}
	}
	var found []Record
	for _, r := range all {
		if len(ref) >= MinPrefix && strings.HasPrefix(r.ID, ref) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		if len(ref) < MinPrefix {
			return Record{}, fmt.Errorf("%w %q: give a name, `last`, or at least %d characters of an id; `skep ps --all` lists them", ErrNone, ref, MinPrefix)
		}
		return Record{}, fmt.Errorf("%w %q: `skep ps --all` lists them", ErrNone, ref)
	}
	return Record{}, fmt.Errorf("%q %w: give more characters", ref, ErrAmbiguous)
}

// Remove forgets a cell and deletes all that is in its directory. What the agent
// wrote must be gone before: it may not be ours to remove.
func (s *Store) Remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, id)
	delete(s.unkept, id)
	if err := os.RemoveAll(s.Dir(id)); err != nil {
		return fmt.Errorf("remove cell %s: %w", id, err)
	}
	return nil
}
