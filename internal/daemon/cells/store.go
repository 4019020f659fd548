package cells

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	records map[string]*kept
	unkept  map[string]bool // ends that could not be written yet
}

// kept is a record and its file.
type kept struct {
	writing sync.Mutex // around each write of the file; taken before the store's
	record  Record     // as it is told; the store's mutex guards it
}

// Open reads every record below dir, which it makes if it is not there, and finishes
// what a crash cut off. A directory without a record is the rest of a cell that was
// never declared: it is listed in rests.
func Open(dir string) (s *Store, rests []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("open cells: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open cells: %w", err)
	}
	s = &Store{dir: dir, records: map[string]*kept{}, unkept: map[string]bool{}}
	for _, e := range entries {
		if !e.IsDir() || !ValidID(e.Name()) {
			continue
		}
		if err := finish(filepath.Join(dir, e.Name())); err != nil {
			return nil, nil, fmt.Errorf("open cells: %w", err)
		}
		r, err := read(filepath.Join(dir, e.Name()), fileName)
		if errors.Is(err, fs.ErrNotExist) {
			r, err = readMarked(filepath.Join(dir, e.Name()))
		}
		if errors.Is(err, fs.ErrNotExist) {
			rests = append(rests, e.Name())
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		s.records[r.ID] = &kept{record: *r}
	}
	return s, rests, nil
}

// Dir is the directory of one cell.
func (s *Store) Dir(id string) string { return filepath.Join(s.dir, id) }

// Add makes a cell's directory and its first record, which a program that starts after
// a kill finds from now on. keep has to be called, once: after it a crash of the machine
// leaves the record, too. A name that a cell which is not merged or dropped has is refused.
func (s *Store) Add(r Record) (keep func() error, err error) {
	if err := CheckName(r.Name); err != nil {
		return nil, err
	}
	k := &kept{record: r}
	k.writing.Lock()
	if err := s.claim(k); err != nil {
		return nil, err
	}
	dir := s.Dir(r.ID)
	f, err := begin(dir, &r)
	if err != nil {
		k.writing.Unlock()
		return nil, errors.Join(err, s.Remove(r.ID))
	}
	return func() error {
		err := commitFirst(dir, f)
		k.writing.Unlock()
		if err == nil { // there is space again
			s.Retry()
		}
		return err
	}, nil
}

// claim makes the directory of a cell whose name is free.
func (s *Store) claim(k *kept) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.records {
		r := &other.record
		if k.record.Name != "" && r.Name == k.record.Name && (!r.State.Ended() || r.State == Stopped && r.Guest == nil) {
			return fmt.Errorf("cell %s has the name %s: drop or merge it, or choose another", r.ID, r.Name)
		}
	}
	if err := os.Mkdir(s.Dir(k.record.ID), 0o700); err != nil {
		return fmt.Errorf("make directory of cell: %w", err)
	}
	s.records[k.record.ID] = k
	return nil
}

// Set changes what is told of a cell, not its file: for what the ledger has, since a
// full disk does not undo that. [Store.Keep] writes it, once nobody waits.
func (s *Store) Set(id string, edit func(*Record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.records[id]
	if k == nil {
		return ErrNone
	}
	edit(&k.record)
	return nil
}

// Keep writes a record as it is told. After an error it is tried again with the next
// cell; until then only the ledger has what a crash takes here.
func (s *Store) Keep(id string) error {
	_, err := s.write(id, func(*Record) {})
	if err != nil && !errors.Is(err, ErrNone) {
		s.mu.Lock()
		s.unkept[id] = true
		s.mu.Unlock()
	}
	return err
}

// Retry keeps what could not be kept before, where there is room again.
func (s *Store) Retry() {
	s.mu.Lock()
	again := slices.Collect(maps.Keys(s.unkept))
	s.mu.Unlock()
	for _, id := range again {
		_ = s.Keep(id)
	}
}

// Kept tells whether every record stands in its file.
func (s *Store) Kept() error {
	s.Retry()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unkept) > 0 {
		return fmt.Errorf("%d records of cells could not be written yet", len(s.unkept))
	}
	return nil
}

// Change edits a record, on disk and then as it is told, and returns what it is now.
// On an error nothing changed. edit may be called twice.
func (s *Store) Change(id string, edit func(*Record)) (Record, error) { return s.write(id, edit) }

func (s *Store) write(id string, edit func(*Record)) (Record, error) {
	s.mu.Lock()
	k := s.records[id]
	s.mu.Unlock()
	if k == nil {
		return Record{}, ErrNone
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	s.mu.Lock()
	changed := k.record
	s.mu.Unlock()
	old := changed
	edit(&changed)
	if err := write(s.Dir(id), &changed); err != nil {
		return old, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(&k.record) // what was counted meanwhile stays
	delete(s.unkept, id)
	return k.record, nil
}

// Count adds crossings to a record; the next write keeps them. The
// ledger has each of them, this is only their number.
func (s *Store) Count(id string, allowed, refused int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.records[id]; k != nil {
		k.record.Allowed += allowed
		k.record.Refused += refused
	}
}

// Get is the record with that id.
func (s *Store) Get(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.records[id]
	if k == nil {
		return Record{}, false
	}
	return k.record, true
}

// All lists the records, oldest first.
func (s *Store) All() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Record, 0, len(s.records))
	for _, k := range s.records {
		all = append(all, k.record)
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
