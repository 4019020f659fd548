// Package walk finds what an overlay layer changed: it reads the private upper
// directory beside the live base and yields one entry per path in which the
// cell's merged view differs from the base (S1, S2).
//
// Its laws:
//   - It works on two descriptors and relative names; the base is only read.
//   - It reads overlayfs as the kernel does (option userxattr): a character
//     device 0/0 or a marked empty file is a whiteout, an opaque directory
//     hides the base's. A layer that uses features we never switch on
//     (redirect, metacopy) is refused, not guessed at.
//   - What was copied up and is equal to the base is no entry.
//   - Where a file was granted, only a file is no refused entry.
//   - A removed or hidden directory lists every path below it, so that base
//     plus entries is exactly the cell's view. A directory so deep that the paths
//     below it are longer than any that can be opened is one refused entry.
package walk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/sys"
)

// The overlay's own attributes, in the form of option userxattr
// (Documentation/filesystems/overlayfs.rst).
const (
	xattrOpaque   = "user.overlay.opaque"
	xattrWhiteout = "user.overlay.whiteout"
	xattrRedirect = "user.overlay.redirect"
	xattrMetacopy = "user.overlay.metacopy"
)

// Grant is one writable grant of a cell. The files stay the caller's.
type Grant struct {
	Base  *os.File // the host directory; nil where Files is set
	Upper *os.File // the overlay's upper directory
	// Files are single granted files of one directory by their names, opened for
	// reading: they are all that there is of the base. One that the host no
	// longer has is absent. Not nil, it makes the upper directory theirs.
	Files map[string]*os.File
	// CompareRoot: whoever made the upper directory gave it the base's mode
	// and user attributes, so that a difference there is the cell's doing.
	// Else the root is never an entry.
	CompareRoot bool
}

// Layer walks g, which is grant number index, and yields its entries. Progress
// is called while long contents are hashed; an error of either stops the walk.
func Layer(ctx context.Context, index int, g Grant, yield func(snapshot.Entry) error, progress func(int64) error) error {
	w := &walker{ctx: ctx, index: index, g: g, yield: yield, read: tree.Reader{Progress: progress}}
	if g.CompareRoot {
		base, st, err := w.read.At(ctx, g.Base, ".")
		if err != nil {
			return err
		}
		upper, _, err := w.read.At(ctx, g.Upper, ".")
		if err != nil {
			return err
		}
		if err := w.compare(".", base, &st, upper, 0); err != nil {
			return err
		}
	}
	return w.run(".")
}

// task is one directory that is still to be read.
type task struct {
	path  string
	base  bool // a base directory shows through
	upper bool // the upper directory has it
	// hidden: a directory above it is opaque, so nothing of the base shows
	// through here either, whatever its own mark says.
	hidden bool
}

type walker struct {
	ctx   context.Context
	index int
	g     Grant
	yield func(snapshot.Entry) error
	read  tree.Reader
	todo  []task
}

// run reads directories from a stack, each reopened by its path from the root:
// the depth of a hostile tree then costs no descriptors.
func (w *walker) run(path string) error {
	w.todo = []task{{path: path, base: w.g.Files == nil, upper: true}}
	for len(w.todo) > 0 {
		t := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if err := w.ctx.Err(); err != nil {
			return err
		}
		var err error
		if t.upper {
			err = w.both(t)
		} else {
			err = w.gone(t.path)
		}
		if err != nil {
			return fmt.Errorf("directory %q: %w", t.path, err)
		}
	}
	return nil
}

// both reads a directory of the upper tree, beside the base's where that one
// shows through.
func (w *walker) both(t task) error {
	upper, err := sys.OpenDirBeneath(w.g.Upper, t.path)
	if err != nil {
		return err
	}
	defer upper.Close()
	var base *os.File
	if t.base {
		base, err = sys.OpenDirBeneath(w.g.Base, t.path)
		if err != nil && !tree.Missing(err) {
			return err
		}
		if base != nil {
			defer base.Close()
		}
	}
	opaque, err := w.opaque(upper)
	if err != nil {
		return err
	}
	if t.hidden && opaque == merges {
		opaque = hidesBase
	}
	names, err := tree.Names(upper)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.name(t, name, base, upper, opaque); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	if base == nil || (opaque != hidesBase && !t.hidden) {
		return nil
	}
	return w.hidden(t.path, base, names)
}

// opacity is what the opaque mark of an upper directory says.
type opacity uint8

const (
	merges    opacity = iota // the base's names show through
	hidesBase                // "y": they do not
	marksHold                // "x": they do, and whiteouts may be attributes
)

func (w *walker) opaque(dir *os.File) (opacity, error) {
	for _, name := range []string{xattrRedirect, xattrMetacopy} {
		_, found, err := sys.GetXattr(dir, name)
		if err == nil && found {
			err = fmt.Errorf("the layer uses %s, which is never switched on", name)
		}
		if err != nil {
			return merges, err
		}
	}
	value, _, err := sys.GetXattr(dir, xattrOpaque)
	switch {
	case err != nil:
		return merges, err
	case string(value) == "y":
		return hidesBase, nil
	case string(value) == "x":
		return marksHold, nil
	}
	return merges, nil
}

// name handles one name of an upper directory. base is nil where no base
// directory lies under it; an opaque directory's base is still compared with,
// since the base's objects are what a merge replaces.
func (w *walker) name(t task, name string, base, upper *os.File, opaque opacity) error {
	path := below(t.path, name)
	if err := snapshot.CheckPath(path); err != nil {
		return err
	}
	st, err := sys.StatAt(upper, name)
	if err != nil {
		return err
	}
	var before snapshot.State
	var old sys.FileStat
	if base != nil {
		before, old, err = w.read.At(w.ctx, base, name)
	} else if f := w.g.Files[name]; f != nil && t.path == "." {
		before, old, err = w.file(f)
	}
	if err != nil {
		return err
	}
	whiteout, err := isWhiteout(upper, name, &st, opaque)
	if err != nil {
		return err
	}
	if whiteout {
		if before.Type == snapshot.Absent {
			return nil // it hides what the host has removed itself
		}
		if before.Type == snapshot.Dir {
			w.later(task{path: path, base: true})
		}
		return w.compare(path, before, &old, snapshot.State{}, 0)
	}
	after, _, err := w.read.At(w.ctx, upper, name)
	if err != nil {
		return err
	}
	switch {
	case after.Type == snapshot.Dir:
		w.later(task{
			path: path, base: before.Type == snapshot.Dir, upper: true,
			hidden: t.hidden || opaque == hidesBase,
		})
	case before.Type == snapshot.Dir:
		w.later(task{path: path, base: true})
	}
	return w.compare(path, before, &old, after, group(&st))
}

func below(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

// isWhiteout says whether an object of the upper tree stands for "removed".
func isWhiteout(dir *os.File, name string, st *sys.FileStat, opaque opacity) (bool, error) {
	switch st.Mode & sys.ModeTypeMask {
	case sys.ModeChar:
		return st.Rdev == 0, nil
	case sys.ModeRegular:
		if st.Size != 0 || opaque != marksHold {
			return false, nil
		}
		f, err := sys.OpenBeneath(dir, name, os.O_RDONLY, 0)
		if err != nil {
			return false, err
		}
		defer f.Close()
		_, found, err := sys.GetXattr(f, xattrWhiteout)
		return found, err
	}
	return false, nil
}

// group names an inode with several names in the layer; 0 for one name.
func group(st *sys.FileStat) uint64 {
	if st.Mode&sys.ModeTypeMask != sys.ModeRegular || st.Nlink < 2 {
		return 0
	}
	return st.Ino
}

// hidden yields what an opaque directory hides: the base's names that the
// upper directory (sorted names) has not.
func (w *walker) hidden(dir string, base *os.File, upper []string) error {
	names, err := tree.Names(base)
	if err != nil {
		return err
	}
	i := 0
	for _, name := range names {
		for i < len(upper) && upper[i] < name {
			i++
		}
		if i < len(upper) && upper[i] == name {
			continue
		}
		if err := w.removed(dir, name, base); err != nil {
			return err
		}
	}
	return nil
}

// gone yields everything in a base directory that the cell no longer sees.
func (w *walker) gone(path string) error {
	base, err := sys.OpenDirBeneath(w.g.Base, path)
	if tree.Missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer base.Close()
	names, err := tree.Names(base)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.removed(path, name, base); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) removed(dir, name string, base *os.File) error {
	path := below(dir, name)
	if err := snapshot.CheckPath(path); err != nil {
		return err
	}
	before, st, err := w.read.At(w.ctx, base, name)
	if err != nil || before.Type == snapshot.Absent {
		return err
	}
	if before.Type == snapshot.Dir {
		w.later(task{path: path, base: true})
	}
	return w.compare(path, before, &st, snapshot.State{}, 0)
}

// deepest is the longest path of a directory that is looked into: one more name fits.
const deepest = snapshot.MaxPath - 256

// later leaves a directory to run.
func (w *walker) later(t task) {
	if len(t.path) <= deepest {
		w.todo = append(w.todo, t)
	}
}

// tooDeep: nothing opens what is in it by one path, neither a merge nor its undoing.
const tooDeep = "it lies so deep that what is in it is neither shown nor merged"

// compare yields what differs; old is the stat of base.
func (w *walker) compare(path string, base snapshot.State, old *sys.FileStat, layer snapshot.State, group uint64) error {
	e := snapshot.Entry{Grant: w.index, Path: path, Base: base, Layer: layer, Group: group}
	if base.Type != snapshot.Absent {
		e.BaseChanged = time.Unix(old.Ctim.Unix())
	}
	deep := len(path) > deepest && (base.Type == snapshot.Dir || layer.Type == snapshot.Dir)
	if e.Op() == snapshot.OpNone {
		if deep { // what changed in it must not stay unsaid
			return errors.New(tooDeep)
		}
		return nil
	}
	if deep {
		e.Refused = tooDeep
	}
	if w.g.Files != nil && !layer.Type.Special() && (layer.Type != snapshot.File && layer.Type != snapshot.Absent || strings.Contains(path, "/")) {
		e.Refused = notAFile
	}
	return w.yield(e)
}

// notAFile: what is put in the place of a granted file would be what the next cell is
// granted, and a link leads to what nobody named.
const notAFile = "a file was granted: nothing else is merged in its place"

// file reads a granted file. Its owner is the agent, as the owner of a granted
// directory is, whatever number the host has for it.
func (w *walker) file(f *os.File) (snapshot.State, sys.FileStat, error) {
	st, err := sys.StatFile(f)
	if err != nil {
		return snapshot.State{}, st, err
	}
	if tree.TypeOf(&st) != snapshot.File {
		return snapshot.State{}, st, errors.New("the granted file is no regular file")
	}
	own, err := sys.StatFile(w.g.Upper)
	if err != nil {
		return snapshot.State{}, st, err
	}
	st.Uid, st.Gid = own.Uid, own.Gid
	s := tree.Stat(&st)
	if _, err := f.Seek(0, 0); err != nil { // it is read again and again
		if errors.Is(err, syscall.EBADF) {
			return snapshot.State{}, st, errors.New("the granted file was opened for its path only")
		}
		return snapshot.State{}, st, err
	}
	return s, st, w.read.File(w.ctx, f, &st, &s)
}
