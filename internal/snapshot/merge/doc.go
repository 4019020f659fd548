// Package merge applies a difference that a person has read to the host tree,
// in the process and with the rights of that person (S4, S5, S5a).
//
// What it writes, in order; a crash before "done" is undone, after it finished:
//
//	begin    journal: roots, staging names, every unit with both its states
//	stage    new objects into .skep-merge-XXXXXXXX/ at each root, synced
//	staged   journal: their inodes, by which recovery tells done from not
//	apply    one rename per unit: exchange, put in, or take out
//	verify   what came out is what the hash bound, else undo all
//	save     its contents into the user's own state, for Undo, where they cannot be moved
//	settle   modes and attributes of directories that stay
//	done     journal; from here the tree is "after"
//	keep     old contents moved into the user's own state
//	clean    staging removed
//	closed   journal
//
// Its laws:
//   - All or nothing: after Apply, or after Recover where it was killed, the
//     tree is exactly before or exactly after.
//   - A path is opened beneath its root, through no link and no mount (S5).
//   - Old objects are moved, never written: a hard link outside keeps its
//     bytes, and undoing gives back the same inode.
//   - Modes are only narrowed (snapshot.MergedMode), set-id never set.
//   - What is refused or held is left out with everything that depends on it.
package merge
