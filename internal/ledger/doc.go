// Package ledger is the record of all that crossed: one hash chain per cell,
// in one journal, cut into segments that are sealed by two signatures.
//
// Its laws:
//   - Written, synced, acknowledged: [Ledger.Append] returns a sequence number
//     only for an entry that a crash cannot take back (D3). Exec entries and
//     denied calls are acknowledged by the write and synced within 50 ms.
//   - A ledger that cannot write refuses, and so whoever asked must deny (D4).
//     A reserve of disk space is kept for the denial and the stop.
//   - Nothing is rewritten. Only bytes that were never acknowledged are cut,
//     and a signed recovery entry says so (D11).
//   - One program writes: a second opener of the same directory is refused (D10).
//   - [Read], and the package verify, need neither the daemon nor a private key.
//
// On disk: lock, reserve, seals (frames), journal/%016x (frames; the name is
// the position of the file's first byte in the whole journal), and torn-%016x,
// the bytes that a recovery cut off. docs/ledger.md has the format.
package ledger
