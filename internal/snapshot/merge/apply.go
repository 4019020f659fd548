package merge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/merge/journal"
	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/sys"
)

func isErrno(err error, want syscall.Errno) bool { return errors.Is(err, want) }

// apply performs the renames. Every old object is checked and saved before the
// next unit, so that a tree that moved is noticed at once.
func (t *transaction) apply(ctx context.Context) error {
	t.renaming = true
	for i := range t.dirs {
		if err := t.do("open up"); err != nil {
			return err
		}
		if err := t.openUp(&t.dirs[i]); err != nil {
			return fmt.Errorf("merge into %q: %w", t.dirs[i].Path, err)
		}
	}
	for i := range t.units {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.do("rename"); err != nil {
			return err
		}
		if err := t.rename(i); err != nil {
			return t.failed(i, err)
		}
		if len(t.units[i].Before) == 0 {
			continue
		}
		if err := t.do("verify"); err != nil {
			return err
		}
		if err := t.verify(ctx, i); err != nil {
			return t.failed(i, err)
		}
	}
	return nil
}

// failed says what a person can do where an undo finds a path that is not as the merge
// left it.
func (t *transaction) failed(i int, err error) error {
	u := &t.units[i]
	if t.undoes == "" || !errors.Is(err, tree.ErrMoved) {
		return fmt.Errorf("merge %q: %w", u.Path, err)
	}
	c := &changedError{path: filepath.Join(t.roots[u.Root].path, u.Path)}
	if len(u.After) == 1 && u.After[0].State.Type == snapshot.File {
		c.old = filepath.Join(filepath.Dir(t.dir), t.undoes, oldName, savedName(i, 0))
	}
	return c
}

// changedError is [tree.ErrMoved] of a path that is to be taken back.
type changedError struct{ path, old string }

func (e *changedError) Error() string {
	s := escape.Line(e.path) + " was changed since the merge; restore it as the merge left it"
	if e.old != "" {
		s += ", or take the old file from " + e.old
	}
	return s
}

func (e *changedError) Unwrap() error { return tree.ErrMoved }

// openUp lets the owner write in a directory that a unit lies in.
func (t *transaction) openUp(d *journal.Touched) error {
	if d.Before.Mode&0o700 == 0o700 {
		return nil
	}
	err := t.inRoot(d.Root, d.Path, func(dir *os.File, name string) error {
		return sys.ChmodAt(dir, name, d.Before.Mode|0o700)
	})
	if denied(err) {
		return nil // not ours; if it matters, the rename will say so
	}
	return err
}

// inRoot runs do with the directory that holds path, which may be ".".
func (t *transaction) inRoot(root int, path string, do func(dir *os.File, name string) error) error {
	if path == "." {
		return do(t.roots[root].dir, ".")
	}
	dir, name, err := sys.OpenParentBeneath(t.roots[root].dir, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return do(dir, name)
}

func (t *transaction) rename(i int) error {
	u := &t.units[i]
	staging := t.roots[u.Root].staging
	return t.inRoot(u.Root, u.Path, func(dir *os.File, name string) error {
		if len(u.Before) > 0 && u.Before[0].State.Type == snapshot.Dir && u.Before[0].State.Mode&0o700 != 0o700 {
			// Without it the kernel may not rewrite its "..".
			if err := sys.ChmodAt(dir, name, u.Before[0].State.Mode|0o700); err != nil {
				return err
			}
		}
		var err error
		switch {
		case len(u.Before) == 0:
			err = sys.RenameNewAt(staging, unitName(i), dir, name)
		case len(u.After) == 0:
			err = sys.RenameNewAt(dir, name, staging, unitName(i))
		default:
			err = sys.ExchangeAt(staging, unitName(i), dir, name)
		}
		switch {
		case isErrno(err, syscall.EEXIST), tree.Missing(err):
			return errors.Join(err, tree.ErrMoved)
		case isErrno(err, syscall.EINVAL), isErrno(err, syscall.EXDEV):
			return fmt.Errorf("this filesystem cannot exchange it in one step: %w", err)
		}
		return err
	})
}

// verify checks what came out of the tree against the base that the hash
// bound, object by object and nothing beside them, and saves its contents.
func (t *transaction) verify(ctx context.Context, i int) error {
	u := &t.units[i]
	staging := t.roots[u.Root].staging
	children := map[string]int{} // directory to how many names the plan knows in it
	for n := range u.Before {
		if rel := u.Before[n].Rel; rel != "." {
			children[filepath.Dir(rel)]++
		}
	}
	for n := range u.Before {
		node := &u.Before[n]
		err := inStaging(staging, i, node.Rel, func(dir *os.File, name string) error {
			return t.verifyNode(ctx, i, n, dir, name, children[node.Rel])
		})
		if err != nil {
			return fmt.Errorf("%q: %w", node.Rel, err)
		}
	}
	return nil
}

func (t *transaction) verifyNode(ctx context.Context, i, n int, dir *os.File, name string, children int) error {
	want := t.units[i].Before[n].State
	pinned, err := sys.PinnedAt(dir, name)
	if err != nil {
		return err
	}
	if pinned {
		return errors.New("it is immutable or append-only (see lsattr), so it cannot be replaced")
	}
	if want.Type != snapshot.File && want.Type != snapshot.Dir {
		got, _, err := tree.Reader{}.At(ctx, dir, name)
		if err == nil && !got.SameContent(want) {
			err = tree.ErrMoved
		}
		return err
	}
	st, err := sys.StatAt(dir, name)
	if err != nil {
		return err
	}
	got := tree.Stat(&st)
	opened := want.Type == snapshot.Dir && got.Mode == want.Mode|0o700
	if got.Type != want.Type || (got.Mode != want.Mode && !opened) {
		return tree.ErrMoved
	}
	f, giveBack, err := openOwn(dir, name, &st)
	if err != nil {
		return errors.Join(err, giveBack())
	}
	defer f.Close()
	if want.Type == snapshot.Dir {
		return verifyDir(f, &st, want, children)
	}
	err = (tree.Reader{}).File(ctx, f, &st, &got)
	if err = errors.Join(err, giveBack()); err != nil {
		return err
	}
	if !got.SameXattrs(want) || got.Size != want.Size || (!want.Unreadable && got.Digest != want.Digest) {
		return tree.ErrMoved
	}
	if t.undoes != "" {
		return nil // nobody would ever read the copy
	}
	if t.roots[t.units[i].Root].moves(f, &st) {
		return nil // keep moves it
	}
	return t.save(ctx, f, savedName(i, n), &st, got)
}

func verifyDir(f *os.File, st *sys.FileStat, want snapshot.State, children int) error {
	names, err := tree.Names(f)
	if err != nil {
		return err
	}
	xattrs, oversized, err := tree.Xattrs(f)
	if err != nil {
		return err
	}
	if len(names) != children || !(snapshot.State{Xattrs: xattrs, Oversized: oversized}).SameXattrs(want) {
		return tree.ErrMoved
	}
	if len(names) > 0 && os.Geteuid() != 0 && int(st.Uid) != os.Geteuid() && st.Mode&0o022 == 0 {
		return errors.New("it is another user's directory, so what is in it cannot be removed")
	}
	return nil
}

// openOwn opens an object that was taken out, to read. Its owner may read it
// even where the mode says no: the mode is lent, since attributes are read with
// the mode of the moment. giveBack must be called: a hard link outside shares
// the mode of a file. A directory keeps it until it is removed or put back.
func openOwn(dir *os.File, name string, st *sys.FileStat) (f *os.File, giveBack func() error, err error) {
	giveBack = func() error { return nil }
	f, err = sys.OpenBeneath(dir, name, os.O_RDONLY, 0)
	isDir := st.Mode&sys.ModeTypeMask == sys.ModeDir
	mode := st.Mode & 0o7777
	lend := denied(err) || (isDir && mode&0o700 != 0o700)
	if !lend || int(st.Uid) != os.Geteuid() {
		return f, giveBack, err
	}
	if f != nil {
		f.Close()
	}
	if err := sys.ChmodAt(dir, name, mode|0o700); err != nil {
		return nil, giveBack, err
	}
	if !isDir {
		giveBack = func() error { return sys.ChmodAt(dir, name, mode) }
	}
	f, err = sys.OpenBeneath(dir, name, os.O_RDONLY, 0)
	return f, giveBack, err
}

// save keeps an old content for Undo; mode, time and attributes are in the
// journal, the owner on the file where the caller may set it.
func (t *transaction) save(ctx context.Context, f *os.File, name string, st *sys.FileStat, got snapshot.State) error {
	if err := t.do("save"); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Join(t.dir, oldName))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := tree.CopyFile(ctx, dir, name, f, got); err != nil {
		return fmt.Errorf("save the old content: %w", err)
	}
	err = sys.ChownAt(dir, name, st.Uid, st.Gid)
	if denied(err) || isErrno(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// settle gives directories their last modes and attributes, deepest first.
func (t *transaction) settle(context.Context) error {
	for i := len(t.units) - 1; i >= 0; i-- {
		u := &t.units[i]
		if len(u.After) == 0 || u.After[0].State.Type != snapshot.Dir || u.After[0].State.Mode&0o700 == 0o700 {
			continue
		}
		if err := t.do("settle"); err != nil {
			return err
		}
		err := t.inRoot(u.Root, u.Path, func(dir *os.File, name string) error {
			return sys.ChmodAt(dir, name, u.After[0].State.Mode)
		})
		if err != nil {
			return err
		}
	}
	for i := len(t.dirs) - 1; i >= 0; i-- {
		if err := t.do("settle"); err != nil {
			return err
		}
		if err := t.settleDir(&t.dirs[i], &t.dirs[i].Before, &t.dirs[i].After); err != nil {
			return err
		}
	}
	return nil
}

// settleDir brings a touched directory from one side to the other.
func (t *transaction) settleDir(d *journal.Touched, from, to *snapshot.State) error {
	err := t.inRoot(d.Root, d.Path, func(dir *os.File, name string) error {
		if d.Meta && !from.SameXattrs(*to) {
			f, err := sys.OpenDirBeneath(dir, name)
			if err != nil {
				return err
			}
			err = tree.SetXattrs(f, to.Xattrs)
			f.Close()
			if err != nil {
				return err
			}
		}
		st, err := sys.StatAt(dir, name)
		if err != nil || st.Mode&0o7777 == to.Mode {
			return err
		}
		return sys.ChmodAt(dir, name, to.Mode)
	})
	if err != nil {
		return fmt.Errorf("directory %q: %w", d.Path, err)
	}
	return nil
}
