package merge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skep.dev/skep/internal/snapshot/merge/journal"
	"skep.dev/skep/internal/sys"
)

// Recovered is one interrupted merge that Recover found.
type Recovered struct {
	Hash     string
	Finished bool     // the tree is "after"; else it is "before" again
	Roots    []string // on the host
}

// Recover finishes or undoes what a crash left of any merge of this user, and
// forgets merges that are too old to be taken back. It does nothing while
// another process merges. What it could not do is in the error, and is tried
// again by the next call.
func Recover(stateDir string) ([]Recovered, error) { return recoverWith(stateDir, nil) }

func recoverWith(stateDir string, step func(string) error) ([]Recovered, error) {
	// Most users have never been interrupted: look before making anything.
	if _, err := os.Stat(mergesDir(stateDir)); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	unlock, err := lock(stateDir, false)
	if errors.Is(err, errBusy) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	return recoverAll(stateDir, time.Now(), step)
}

func recoverAll(stateDir string, now time.Time, step func(string) error) ([]Recovered, error) {
	entries, err := os.ReadDir(mergesDir(stateDir))
	if err != nil {
		return nil, err
	}
	var all []Recovered
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		one, err := recoverOne(filepath.Join(mergesDir(stateDir), e.Name()), now, step)
		if err != nil {
			errs = append(errs, err)
		} else if one != nil {
			all = append(all, *one)
		}
	}
	return all, errors.Join(errs...)
}

// recoverOne returns nil where there was nothing to do.
func recoverOne(dir string, now time.Time, step func(string) error) (*Recovered, error) {
	h, err := journal.Read(dir)
	if err != nil {
		return nil, err
	}
	switch h.Phase {
	case journal.Closed:
		if now.Sub(h.When) > UndoFor {
			return nil, os.RemoveAll(dir)
		}
		return nil, nil
	case journal.None:
		return nil, os.RemoveAll(dir) // the plan was never whole: nothing was touched
	}
	one := &Recovered{Hash: h.Hash, Finished: h.Phase == journal.Done}
	for _, r := range h.Roots {
		one.Roots = append(one.Roots, r.Path)
	}
	t, err := reopen(dir, h)
	if err != nil {
		return nil, err
	}
	defer t.closeRoots()
	t.undoes, t.step, t.renaming = h.Undoes, step, h.Phase >= journal.Staged
	if !one.Finished {
		return one, t.abort()
	}
	if t.journal, err = journal.Reopen(dir, h.Size); err != nil {
		return nil, err
	}
	return one, t.finish()
}

// Finished reports whether the merge of hash, in full, was carried to its end since
// then and not taken back: the tree is "after". It is meant to be asked after Recover.
func Finished(stateDir, hash string, since time.Time) (bool, error) {
	return finished(stateDir, "", hash, since)
}

// Undone is Finished for taking that merge back.
func Undone(stateDir, hash string, since time.Time) (bool, error) {
	return finished(stateDir, undoPrefix, hash, since)
}

func finished(stateDir, prefix, hash string, since time.Time) (bool, error) {
	if len(hash) != 64 || filepath.Base(hash) != hash {
		return false, fmt.Errorf("%q is no whole hash", hash)
	}
	h, err := journal.Read(filepath.Join(mergesDir(stateDir), prefix+hash))
	if err != nil {
		return false, err
	}
	return h.Phase >= journal.Done && h.When.After(since), nil
}

// reopen makes a transaction of what a journal says. A root that is no longer
// the directory that it was is an error: nothing there is touched.
func reopen(dir string, h *journal.History) (*transaction, error) {
	t := &transaction{dir: dir, hash: h.Hash, units: h.Units, dirs: h.Dirs}
	for _, jr := range h.Roots {
		f, err := os.OpenFile(jr.Path, os.O_RDONLY, 0)
		if err == nil {
			t.roots = append(t.roots, &root{dir: f, path: jr.Path, id: jr.ID, name: jr.Staging})
			var st sys.FileStat
			if st, err = sys.StatFile(f); err == nil && idOf(&st) != jr.ID {
				err = errors.New("it is another directory now")
			}
		}
		if err != nil {
			t.closeRoots()
			return nil, fmt.Errorf("interrupted merge of %s in %s: %w", h.Hash, jr.Path, err)
		}
	}
	return t, nil
}

func (t *transaction) closeRoots() {
	for _, r := range t.roots {
		r.dir.Close()
		if r.staging != nil {
			r.staging.Close()
		}
	}
}
