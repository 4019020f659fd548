// Package cases is the conformance list of the boundary as programs: each case by its
// number (boundary.md, section 21), against a boundary that is started for it.
//
// Its laws:
//   - A case knows the boundary by its socket, its answers, what it dialed and what it
//     recorded; nothing of it is linked in.
//   - Every refusal also means: nothing was dialed, both fields of B60, no body, and a
//     record with the same token.
//   - A case that cannot run here says what is missing; one that is for a later release
//     says so. Neither counts as passed.
//
// Size: one list, a file for each section of it; its cases share the boundary that they start
// and the other ends that they play.
package cases
