// Package daemon is skepd: it serves the API, owns the life of every cell, and
// writes the record.
//
// Its laws:
//   - Recorded, then done: a cell is declared in the ledger before anything of it
//     is built, and stopped in it before anyone hears that it ended (D3).
//   - It opens no path that a request names. What a cell gets came as a
//     descriptor, opened by the caller with the caller's rights (L6b).
//   - One table says for each call who may make it; the kernel says who calls.
//   - A cell ends exactly once, for one cause, the first.
//   - A skepd that is replaced leaves all that it holds, or goes on as before; nothing is
//     half given (L20a).
//   - kill -9 at any step leaves nothing that the next start does not find and
//     end (L20): a cell's directory and record exist before its first process.
//
// The packages below it: door lets callers in, admit judges their requests, left is what
// another skepd goes on with, orphans what none does; wire reads messages, cells keeps records, boxlink speaks
// to a box, furniture is what stands in every cell, terms what a profile comes to
// here, measure how much a cell wrote, selftest proves the walls, doctor looks at the
// host, models speaks to the gateway, secrets reads what is filled in for a cell.
//
// Size: the life of a cell is one thing, from its request to its end, and a replacement holds
// all of it at once; what of it stands alone is in the packages below.
package daemon
