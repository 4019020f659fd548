// Package listener takes the tunnels of one cell to its gate: CONNECT and connect-udp
// over HTTP/1.1, on a stream socket that only the cell reaches (boundary.md, section 3).
//
// Its laws:
//   - The listener fixes who asks, under which policy and within which budget: all of it
//     is its gate's. No byte of a request does (B33).
//   - A head is read whole, and judged, before anything is resolved or dialed; what
//     follows it stays in the socket until the destination was reached (B34).
//   - A success is answered after the destination was reached, a refusal with both
//     fields of B60 and nothing behind them. Either is answered once.
//   - What goes through one listener costs another nothing: each has its own gate,
//     connections and deadlines (B46).
package listener
