// Package splicer relays TCP flows in one loop: one thread waits for all of them,
// and moves what came without waking anybody.
//
// Its laws:
//   - Bytes arrive whole, in order and once, and are counted when they have left.
//   - What cannot be sent on is not read: of a flow there wait at most one small
//     buffer or one pipe in each direction.
//   - An end of file is passed on as one, a reset as a reset, in the direction in
//     which it came (boundary.md, B20).
//   - A flow takes its turn: none moves more than a share before the others.
package splicer
