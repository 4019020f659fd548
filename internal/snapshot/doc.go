// Package snapshot holds what a cell changed against its host tree: the
// vocabulary of a difference, its hash, and who may see it applied.
//
// Its laws:
//   - A difference is complete: base plus difference is exactly what the cell
//     sees, in type, mode, owner, content, target and user attributes (S2).
//   - The hash binds both sides of every path in it: a moved base or a moved
//     layer is another hash (S3, S12).
//   - A path that no rule makes writable is refused; the zero Judge refuses
//     all (cell.md L8). What runs by itself on the host is held back unless it
//     is named (S5a).
//   - Nothing of a layer is trusted: names are bytes, every size is bounded.
//
// The packages below it: tree reads and writes single objects on descriptors,
// walk finds the entries of an overlay layer, layer carries them out of the
// process that may read it, render shows them, merge applies them.
package snapshot
