package snapshot

import (
	"fmt"
	"strings"
	"time"
)

// Op says in one word what happened to a path.
type Op uint8

// The closed set. Where several are true of one path the first in this order
// is its Op; Changes has all of them. The zero Op is not valid.
const (
	OpNone Op = iota
	Added
	Removed
	TypeChanged
	Changed // content of a file
	Retargeted
	ModeChanged
	OwnerChanged
	XattrChanged
)

var opNames = [...]string{"", "added", "removed", "type", "changed", "target", "mode", "owner", "xattr"}

// String is the op's name in the manifest (S3) and in JSON.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "unknown"
}

// Entry is one path in which the cell's view differs from the base.
type Entry struct {
	Grant int    // index of the grant that holds it
	Path  string // below the grant's root, bytes, "." for the root itself
	Base  State  // zero: the cell added it
	Layer State  // zero: the cell removed it
	// Group is not zero for a layer file with several names: files of one
	// grant with the same Group were one inode. A hint, bound by no hash.
	Group uint64
	// BaseChanged is the ctime of the base's object, zero where there is none: when
	// anything of it was last changed on the host. Bound by no hash.
	BaseChanged time.Time

	// What follows is set by Diff, never by the layer process.
	Active  string // why a program of the host may run because of it (S5a), or ""
	Held    bool   // active, and left out of a merge that does not name it
	Refused string // why a merge never applies it, or ""
	// Conflict: the base was changed after the cell started, and merging replaces that
	// change (S11). Set by MarkConflicts.
	Conflict bool
}

// Op is the first of Changes.
func (e *Entry) Op() Op {
	if c := e.Changes(); len(c) > 0 {
		return c[0]
	}
	return OpNone
}

// Changes lists all that differs, in the order of the constants; empty where
// both sides are the same. Added, Removed and TypeChanged stand alone.
func (e *Entry) Changes() []Op {
	b, l := &e.Base, &e.Layer
	switch {
	case b.Type == Absent && l.Type == Absent:
		return nil
	case b.Type == Absent:
		return []Op{Added}
	case l.Type == Absent:
		return []Op{Removed}
	case b.Type != l.Type:
		return []Op{TypeChanged}
	}
	var ops []Op
	add := func(op Op, differs bool) {
		if differs {
			ops = append(ops, op)
		}
	}
	add(Changed, b.Type != Symlink && (!b.SameContent(*l) || b.Unreadable || l.Unreadable))
	add(Retargeted, b.Type == Symlink && !b.SameContent(*l))
	add(ModeChanged, b.Mode != l.Mode)
	add(OwnerChanged, b.UID != l.UID || b.GID != l.GID)
	add(XattrChanged, !b.SameXattrs(*l))
	return ops
}

// Side names one of the two trees of a difference.
type Side uint8

// BaseSide is the host's tree, LayerSide what the cell wrote. Zero is neither.
const (
	BaseSide  Side = 1
	LayerSide Side = 2
)

// CheckPath says what is wrong with a path that came from outside: it must be
// relative, clean, without "..", at most MaxPath bytes and without NUL.
func CheckPath(path string) error {
	if path == "." {
		return nil
	}
	if path == "" || len(path) > MaxPath || strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("path %q: empty, longer than %d bytes, or with a NUL", clip(path), MaxPath)
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("path %q: component %q", clip(path), part)
		}
	}
	return nil
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}
