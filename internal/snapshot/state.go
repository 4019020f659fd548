package snapshot

import (
	"slices"
	"time"
)

// Type is what kind of object a path is. The zero Type is no object.
type Type uint8

// The closed set of types; Absent is also what a removed path becomes.
const (
	Absent Type = iota
	File
	Dir
	Symlink
	FIFO
	Socket
	CharDevice
	BlockDevice
)

var typeNames = [...]string{"", "file", "dir", "symlink", "fifo", "socket", "char-device", "block-device"}

// String is the name that the manifest and the JSON form use; "" for Absent.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "unknown"
}

// Valid reports whether t is one of the set.
func (t Type) Valid() bool { return int(t) < len(typeNames) }

// Special reports whether t is an object that is listed and never opened (S2, S5).
func (t Type) Special() bool { return t > Symlink }

// Xattr is one extended attribute of the user namespace.
type Xattr struct {
	Name  string
	Value []byte
}

// MaxXattrs and MaxXattrTotal bound the attributes of one object, names and
// values together, in one message. An object with more is refused.
const (
	MaxXattrs     = 256
	MaxXattrTotal = 40 << 10
)

// MaxPath bounds a path below its root, in bytes: PATH_MAX less room for the
// staging directory of a merge.
const MaxPath = 3900

// State is one object on one side. The zero State is "nothing there".
type State struct {
	Type Type
	Mode uint32 // permission bits and set-id and sticky bits, 07777; 0 for a symlink
	UID  uint32 // as the reader's user namespace maps it
	GID  uint32
	Size int64 // bytes of content or target; 0 for what has neither
	// Digest is the SHA-256 of the content or the target. All zero for other
	// types, and for a file that its reader may not read.
	Digest  [32]byte
	Target  string  // of a symlink, bytes
	Xattrs  []Xattr // sorted by name, user.* without the overlay's own
	ModTime time.Time
	// Oversized: the attributes went over the bound and Xattrs is empty.
	Oversized bool
	// Unreadable: the content could not be read, Digest is zero.
	Unreadable bool
}

// Same reports whether two sides agree in all that a difference shows; times
// are kept by a merge and are no difference (S3).
func (s State) Same(o State) bool {
	return s.SameButOwner(o) && s.UID == o.UID && s.GID == o.GID
}

// SameButOwner is Same without the ids, which differ between user namespaces.
func (s State) SameButOwner(o State) bool {
	return s.Type == o.Type && s.Mode == o.Mode && s.SameContent(o) && s.SameXattrs(o) &&
		!s.Unreadable && !o.Unreadable
}

// SameContent compares what a reader of the object gets.
func (s State) SameContent(o State) bool {
	return s.Type == o.Type && s.Size == o.Size && s.Digest == o.Digest && s.Target == o.Target
}

// SameXattrs compares the extended attributes.
func (s State) SameXattrs(o State) bool {
	return s.Oversized == o.Oversized && slices.EqualFunc(s.Xattrs, o.Xattrs, func(a, b Xattr) bool {
		return a.Name == b.Name && string(a.Value) == string(b.Value)
	})
}
