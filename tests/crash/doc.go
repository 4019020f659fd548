// Package crash kills the programs of Skep with SIGKILL at many moments, fills its
// disk, and starts it twice, and looks at what is left (L20, D10, D11, S4).
//
// Its laws:
//   - The programs are copied to a directory of the test's own, whose name stands in
//     the command line of each: what is killed, and what is looked for afterwards, is
//     found by that name and by the tree of processes, never by a program's name alone.
//   - After each kill the next command is an ordinary one: nothing is reset.
//   - What a person was told once must be true for ever: each entry of the ledger that
//     was read is read again, unchanged, after each kill.
//
// SKEP_SOAK makes it kill at least four times as often; SKEP_SEED chooses other moments.
package crash
