// Package right is the one vocabulary of what a cell may do: eight types, each
// with one value, one canonical text, one JSON form and a relation Covers
// (R1). A profile, a sub-cell, an approval and a mesh grant all speak it.
//
// Its laws:
//   - The zero value of every type that grants something grants nothing.
//   - Covers is total, deterministic and does no I/O (R2). Where rules form a
//     set (path, net), the sets are compared, not rule with rule: exactly
//     what the child set would allow, the parent set must allow.
//   - Rules are unordered and add up; of those that match, the narrowest
//     decides. There are no regular expressions (R3).
//   - Amounts are whole numbers in the smallest unit. What cannot be held is
//     refused, never wrapped (R10).
//   - A value that a constructor or a parser gave is canonical: equal meaning
//     is equal text.
//
// Symlinks are resolved by the caller, once, when a right is declared.
package right
