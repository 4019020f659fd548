// Package internet opens flows to the world: it resolves once, judges every
// address, dials those that are kept, and relays.
//
// Its laws:
//   - Nothing is resolved or dialed without a valid boundary.Permit (boundary.md,
//     B5); a literal is never resolved, a name at most once (B101).
//   - Only addresses that the permit keeps are dialed, with the port asked for,
//     and nothing is resolved again for that request (B102, B103).
//   - Not one byte of the agent goes upstream before its inner check is over
//     (B110, B115). A server that speaks first is relayed meanwhile (B113).
//   - Half-close stays half-close and reset stays reset (B20).
package internet
