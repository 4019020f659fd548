// Package profile turns a profile, the YAML file that declares a cell's
// rights, into right values, and every fault of it into a line, a column and
// a fix (L1, L2).
//
// Its laws:
//   - What is absent is not granted. The zero Profile grants nothing.
//   - Nothing is ignored: a key is enforced, or it is refused.
//   - Parsing does no I/O. Who calls says where the file stands.
//   - A profile that Skep found by itself only narrows the one that the user
//     would have had without it (L3): [Narrow] refuses each widening.
//   - The digest binds everything that has an effect: two profiles with one
//     digest give one cell. [Profile.Effective] is what is hashed, and parses
//     back to the same digest.
package profile
