// Package journal is what a merge writes before it touches a tree, by which a crash is
// finished or undone.
//
// Its laws:
//   - It only grows: a record is whole or is none, and ends what can be read.
//   - A phase that was written is on the disk.
package journal

import "skep.dev/skep/internal/snapshot"

// Node is one object of a unit's subtree, parents before children.
type Node struct {
	Rel   string // below the unit's path, "." for the unit itself
	State snapshot.State
	Entry string // path in the grant, for opening its content
	Group uint64 // hard links of the layer, see snapshot.Entry
}

// Unit is one object that is replaced, put in or taken out by one rename,
// with everything below it. An empty list is an absent side.
type Unit struct {
	Root          int
	Path          string // below the root
	Before, After []Node
	New           Object // of the staged object; zero before it was staged
}

// Object names an inode.
type Object struct{ Dev, Ino uint64 }

// Touched is a directory that stays: one whose own mode or attributes change,
// or one that a unit lies in and that may have to be opened up for it.
type Touched struct {
	Root          int
	Path          string
	Before, After snapshot.State // mode and attributes count
	Meta          bool           // it has an entry; else After is Before
}
