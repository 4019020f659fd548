package merge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/merge/journal"
	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/sys"
)

// ErrConflict says that somebody changed a path between an interrupted merge
// and its undoing. Both versions are kept, and the error names where.
var ErrConflict = errors.New("it was changed after the merge was interrupted")

// abort undoes what was done and removes the transaction from the state. It
// finds out by itself how far it came, so it can be called at any point and,
// after another crash, again.
func (t *transaction) abort() error {
	var errs []error
	for i := range t.dirs {
		if err := t.reopenDir(&t.dirs[i]); err != nil {
			errs = append(errs, fmt.Errorf("undo the merge in %q: %w", t.dirs[i].Path, err))
		}
	}
	for i := len(t.units) - 1; i >= 0 && t.renaming; i-- {
		if err := t.putBack(i); err != nil {
			errs = append(errs, fmt.Errorf("undo the merge of %q: %w", t.units[i].Path, err))
		}
	}
	for i := len(t.dirs) - 1; i >= 0; i-- {
		if err := t.restoreDir(&t.dirs[i]); err != nil {
			errs = append(errs, fmt.Errorf("undo the merge of %q: %w", t.dirs[i].Path, err))
		}
	}
	if len(errs) == 0 {
		for _, r := range t.roots {
			if err := t.do("clean"); err != nil {
				errs = append(errs, err)
			} else if err := r.clean(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if t.journal != nil {
		t.journal.Close()
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	// The renames must be on disk before the plan that explains them goes.
	if err := t.syncRoots(); err != nil {
		return err
	}
	if err := t.do("forget"); err != nil {
		return err
	}
	return os.RemoveAll(t.dir)
}

// putBack undoes the rename of one unit, if it was done.
func (t *transaction) putBack(i int) error {
	u := &t.units[i]
	r := t.roots[u.Root]
	if err := r.openStaging(); err != nil || r.staging == nil {
		return err
	}
	return t.inRoot(u.Root, u.Path, func(dir *os.File, name string) error {
		here, isHere, err := ids(dir, name)
		if err != nil {
			return err
		}
		there, isThere, err := ids(r.staging, unitName(i))
		if err != nil {
			return err
		}
		placed := isHere && u.New != journal.Object{} && here == u.New
		oldOut := isThere && there != u.New
		if !placed && !oldOut {
			return t.restoreModes(i) // it was not done
		}
		if err := t.do("put back"); err != nil {
			return err
		}
		if err := t.moveBack(i, dir, name, isHere, placed, oldOut); err != nil {
			return err
		}
		return t.restoreModes(i)
	})
}

func (t *transaction) moveBack(i int, dir *os.File, name string, isHere, placed, oldOut bool) error {
	u := &t.units[i]
	staging := t.roots[u.Root].staging
	if placed && !untouched(dir, name, u.After) {
		if !oldOut {
			return nil // new and used since: it stays, nothing is lost
		}
		return t.conflict(i)
	}
	for _, top := range []struct {
		dir  *os.File
		name string
		move bool
	}{{dir, name, placed}, {staging, unitName(i), oldOut}} {
		if !top.move {
			continue
		}
		if err := movable(top.dir, top.name); err != nil {
			return err
		}
	}
	switch {
	case placed && oldOut:
		return sys.ExchangeAt(staging, unitName(i), dir, name)
	case placed:
		return sys.RenameNewAt(dir, name, staging, unitName(i))
	case isHere: // somebody else's object is where the old one was
		return t.conflict(i)
	}
	return sys.RenameNewAt(staging, unitName(i), dir, name)
}

func (t *transaction) conflict(i int) error {
	r := t.roots[t.units[i].Root]
	return fmt.Errorf("%w: its version from before is %s; move it where you want it, or delete it",
		ErrConflict, filepath.Join(r.path, r.name, unitName(i)))
}

// movable gives a directory the bits without which it cannot be moved.
func movable(dir *os.File, name string) error {
	st, err := sys.StatAt(dir, name)
	if err != nil || st.Mode&sys.ModeTypeMask != sys.ModeDir || st.Mode&0o700 == 0o700 {
		return err
	}
	return sys.ChmodAt(dir, name, st.Mode&0o7777|0o700)
}

// untouched reports whether a new object is still as it was put in, by what a
// stat tells: nobody's later work may be thrown away with it.
func untouched(dir *os.File, name string, nodes []journal.Node) bool {
	children := map[string]int{}
	for n := range nodes {
		if nodes[n].Rel != "." {
			children[filepath.Dir(nodes[n].Rel)]++
		}
	}
	for n := range nodes {
		path := filepath.Join(name, nodes[n].Rel)
		parent, last, err := sys.OpenParentBeneath(dir, path)
		if err != nil {
			return denied(err) // a directory without bits: nobody went in either
		}
		same := sameByStat(parent, last, &nodes[n].State, children[nodes[n].Rel])
		parent.Close()
		if !same {
			return false
		}
	}
	return true
}

func sameByStat(dir *os.File, name string, want *snapshot.State, children int) bool {
	st, err := sys.StatAt(dir, name)
	if err != nil {
		return false
	}
	got := tree.Stat(&st)
	if got.Type != want.Type {
		return false
	}
	if want.Type != snapshot.Dir {
		return got.Size == want.Size && got.ModTime.Equal(want.ModTime)
	}
	f, err := sys.OpenDirBeneath(dir, name)
	if err != nil {
		return denied(err)
	}
	defer f.Close()
	names, err := tree.Names(f)
	return err == nil && len(names) == children
}

// restoreModes gives back modes that were lent to move and read old objects.
func (t *transaction) restoreModes(i int) error {
	u := &t.units[i]
	for n := len(u.Before) - 1; n >= 0; n-- {
		want := &u.Before[n].State
		if (want.Type != snapshot.File && want.Type != snapshot.Dir) || want.Mode&0o700 == 0o700 {
			continue
		}
		path := u.Path
		if u.Before[n].Rel != "." {
			path += "/" + u.Before[n].Rel
		}
		err := t.inRoot(u.Root, path, func(dir *os.File, name string) error {
			return giveBack(dir, name, want.Mode)
		})
		if err != nil && !tree.Missing(err) && !denied(err) {
			return err
		}
	}
	return nil
}

// giveBack resets a mode only where it is the lent one.
func giveBack(dir *os.File, name string, mode uint32) error {
	st, err := sys.StatAt(dir, name)
	if err != nil || st.Mode&0o7777 != mode|0o700 || st.Mode&sys.ModeTypeMask == sys.ModeSymlink {
		return err
	}
	return sys.ChmodAt(dir, name, mode)
}

// reopenDir opens up a directory that settle may already have closed.
func (t *transaction) reopenDir(d *journal.Touched) error {
	if !t.renaming || d.Before.Mode&d.After.Mode&0o700 == 0o700 {
		return nil
	}
	err := t.inRoot(d.Root, d.Path, func(dir *os.File, name string) error {
		st, err := sys.StatAt(dir, name)
		mode := st.Mode & 0o7777
		if err != nil || (mode != d.Before.Mode && mode != d.After.Mode) {
			return err
		}
		return sys.ChmodAt(dir, name, d.Before.Mode|0o700)
	})
	if tree.Missing(err) || denied(err) {
		return nil
	}
	return err
}

// restoreDir brings a touched directory back, unless somebody has changed it
// since to something that is neither side.
func (t *transaction) restoreDir(d *journal.Touched) error {
	err := t.inRoot(d.Root, d.Path, func(dir *os.File, name string) error {
		s, _, err := tree.Reader{}.At(context.Background(), dir, name)
		if err != nil {
			return err
		}
		ours := s.Mode == d.Before.Mode|0o700 || s.Mode == d.After.Mode
		if d.Before.Type == snapshot.Absent || s.Type != snapshot.Dir || !ours {
			return nil
		}
		// Attributes can be half set; what is not the base's was set by us.
		return t.settleDir(d, &s, &d.Before)
	})
	if tree.Missing(err) {
		return nil
	}
	return err
}
