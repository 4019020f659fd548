package merge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"syscall"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/merge/journal"
	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/sys/durable"
)

// root is a granted root that is open, with its staging directory.
type root struct {
	dir     *os.File
	path    string
	id      journal.Object
	name    string   // of the staging directory
	staging *os.File // nil until it was made
	near    bool     // what is in it can be moved into the user's state
}

// transaction is one merge, or the taking back of one.
type transaction struct {
	dir    string // its own directory in the user's state
	hash   string
	undoes string
	roots  []*root
	units  []journal.Unit
	dirs   []journal.Touched
	// content opens the bytes of a regular file that is to be staged.
	content func(ctx context.Context, u, n int) (*os.File, error)
	// next is content for staging, which asks in a fixed order.
	next func(u, n int) (*os.File, error)
	// step is called before everything that changes something; tests kill the
	// process there. Its error is as good as one of the kernel's.
	step    func(name string) error
	journal *journal.Writer
	// renaming: every new object is staged and its inode known, so renames may
	// have happened.
	renaming bool
}

// run performs the transaction or leaves the tree as it was.
func (t *transaction) run(ctx context.Context) error {
	if err := t.begin(); err != nil {
		return errors.Join(err, os.RemoveAll(t.dir)) // the tree was not touched
	}
	for _, part := range []func(context.Context) error{t.stage, t.apply, t.settle, t.commit} {
		if err := part(ctx); err != nil {
			return errors.Join(err, t.abort())
		}
	}
	// The tree is "after": what fails now is tidied by the next Recover.
	return t.finish()
}

func (t *transaction) do(name string) error {
	if t.step == nil {
		return nil
	}
	return t.step(name)
}

// begin writes the plan. Nothing in the tree has changed when it returns.
func (t *transaction) begin() error {
	if err := t.do("begin"); err != nil {
		return err
	}
	b := &journal.Begin{Version: journal.Version, Hash: t.hash, Undoes: t.undoes}
	for _, r := range t.roots {
		st, err := sys.StatFile(r.dir)
		if err != nil {
			return err
		}
		r.id = idOf(&st)
		r.name = ".skep-merge-" + randomHex()
		b.Roots = append(b.Roots, journal.Root{Path: r.path, ID: r.id, Staging: r.name})
	}
	for i := range t.dirs {
		if err := t.look(&t.dirs[i]); err != nil {
			return err
		}
	}
	// Parents first, for opening up; settling goes backwards.
	sort.Slice(t.dirs, func(i, j int) bool { return t.dirs[i].Path < t.dirs[j].Path })
	if err := os.MkdirAll(filepath.Join(t.dir, oldName), 0o700); err != nil {
		return err
	}
	var err error
	if t.journal, err = journal.Create(t.dir); err != nil {
		return err
	}
	if err := t.journal.Write(journal.Record{Begin: b}); err != nil {
		return err
	}
	for i := 0; i < len(t.units); i += journal.PartSize {
		if err := t.journal.Write(journal.Record{Units: t.units[i:min(i+journal.PartSize, len(t.units))]}); err != nil {
			return err
		}
	}
	for i := 0; i < len(t.dirs); i += journal.PartSize {
		if err := t.journal.Write(journal.Record{Dirs: t.dirs[i:min(i+journal.PartSize, len(t.dirs))]}); err != nil {
			return err
		}
	}
	if err := t.journal.Write(journal.Record{Phase: journal.Begun}); err != nil {
		return err
	}
	return syncDirs(t.dir, filepath.Dir(t.dir))
}

// look reads a touched directory and checks one that is to change against
// what the hash bound.
func (t *transaction) look(d *journal.Touched) error {
	s, _, err := tree.Reader{}.At(context.Background(), t.roots[d.Root].dir, ".")
	if d.Path != "." {
		parent, name, err := sys.OpenParentBeneath(t.roots[d.Root].dir, d.Path)
		if err != nil {
			return err
		}
		defer parent.Close()
		s, _, err = tree.Reader{}.At(context.Background(), parent, name)
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if s.Type != snapshot.Dir {
		return fmt.Errorf("directory %q: %w", d.Path, tree.ErrMoved)
	}
	if !d.Meta {
		d.Before, d.After = s, s
		return nil
	}
	if s.Mode != d.Before.Mode || (!s.Unreadable && !s.SameXattrs(d.Before)) {
		return fmt.Errorf("directory %q: %w", d.Path, tree.ErrMoved)
	}
	return nil
}

const oldName = "old"

func unitName(i int) string { return "u" + strconv.Itoa(i) }

// savedName is the file with the old content of node n of unit u.
func savedName(u, n int) string { return strconv.Itoa(u) + "-" + strconv.Itoa(n) }

func idOf(st *sys.FileStat) journal.Object { return journal.Object{Dev: st.Dev, Ino: st.Ino} }

func randomHex() string {
	var b [4]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// commit puts everything on disk, then the record that makes it so.
func (t *transaction) commit(context.Context) error {
	if err := t.syncRoots(); err != nil {
		return err
	}
	if err := t.syncState(); err != nil {
		return err
	}
	if err := t.do("done"); err != nil {
		return err
	}
	return t.journal.Write(journal.Record{Phase: journal.Done})
}

func (t *transaction) syncRoots() error {
	for _, r := range t.roots {
		if err := sys.SyncFilesystem(r.dir); err != nil {
			return err
		}
	}
	return nil
}

// syncState writes out the saved contents: one call for all of them, since a
// sync for each would cost more than the rest of a merge.
func (t *transaction) syncState() error {
	f, err := os.Open(filepath.Join(t.dir, oldName))
	if err != nil {
		return err
	}
	return errors.Join(sys.SyncFilesystem(f), f.Close())
}

func syncDirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := durable.SyncDir(dir); err != nil {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
	}
	return nil
}

// finish removes the staging directories with the old objects in them, forgets a merge
// that was taken back, and closes the journal.
func (t *transaction) finish() error {
	if t.undoes == "" { // an undo is not taken back
		if err := t.keep(); err != nil {
			return fmt.Errorf("the merge is complete, but its staging directory stays: %w", err)
		}
	}
	for _, r := range t.roots {
		if err := t.do("clean"); err != nil {
			return err
		}
		if err := r.clean(); err != nil {
			return fmt.Errorf("the merge is complete, but its staging directory stays: %w", err)
		}
	}
	if t.undoes != "" {
		if err := t.do("forget"); err != nil {
			return err
		}
		// An undo is not taken back: its journal stays, to tell that it was done.
		for _, dir := range []string{filepath.Join(filepath.Dir(t.dir), t.undoes), filepath.Join(t.dir, oldName)} {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	if err := t.do("close"); err != nil {
		return err
	}
	defer t.journal.Close()
	return t.journal.Write(journal.Record{Phase: journal.Closed})
}

// clean removes the staging directory, if there is one. An old object may hang
// on a hard link outside, so removing must change no mode but a directory's.
func (r *root) clean() error {
	if r.staging != nil {
		r.staging.Close()
		r.staging = nil
	}
	return tree.Remove(r.dir, r.name)
}

// openStaging opens the staging directory; nil where there is none.
func (r *root) openStaging() error {
	if r.staging != nil {
		return nil
	}
	f, err := sys.OpenDirBeneath(r.dir, r.name)
	if tree.Missing(err) {
		return nil
	}
	r.staging = f
	return err
}

// ids reads an object's inode; false where there is none.
func ids(dir *os.File, name string) (journal.Object, bool, error) {
	st, err := sys.StatAt(dir, name)
	if tree.Missing(err) {
		return journal.Object{}, false, nil
	}
	return idOf(&st), err == nil, err
}

// denied reports whether a permission was missing.
func denied(err error) bool {
	return errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}
