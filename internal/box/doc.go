// Package box is the body of skep-box: the way out of one cell.
//
// Its laws:
//   - It confines itself before it reads a byte from anybody: no file at all, no
//     exec, no trace, no unix socket, for its whole life (confine.go).
//   - Everything it works with are descriptors: the daemon (3), the cell's warden
//     (4), the lifeline (5), the model gateway (6). It opens nothing but connections of the gate.
//   - It serves one cell, named by the daemon's end of descriptor 3, and ends when
//     that connection, the warden's or a listener ends: then the kernel resets
//     what the cell opens (boundary.md, B10).
//   - The cell's agent may start only after Ready, which follows a request that
//     was answered under the installed policy (B163).
//   - It holds no ledger key and appends through the daemon alone (B192).
//   - It carries only the bytes that the daemon has leased it, where its cell has a
//     budget of them (R9a), and keeps an outcome until it is written (B190).
//
// Size: one program for one cell; what it reads from the daemon, asks of the warden and
// tells about flows are short files that share unexported values, and nobody else needs.
package box
