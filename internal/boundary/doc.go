// Package boundary is the gate of a cell: the one place where an attempt to reach
// a destination is decided, recorded and opened.
//
// Its laws:
//   - The order is identify, decide, record, open, account, and it is one
//     function, Gate.Serve (boundary.md, B4). The intent is durable before the
//     flow opens; what cannot be recorded in time does not open.
//   - Only this package makes a Permit, and only for an allowed Request; the zero
//     Permit is refused by every destination (B5).
//   - Identity is the gate's own, whatever a Request says (B33).
//   - Refusals add up: coalesced or counted, the recorded counts are as many as
//     the refusals (B17).
package boundary
