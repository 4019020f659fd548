// Package h2 is the box's side of its connections to skepd and to the model
// gateway: HTTP/2 with prior knowledge (RFC 9113) on one descriptor, as a client
// of a peer that is ours.
//
// Its laws:
//   - It does what a server can ask of such a client and refuses all else: a frame
//     that it does not expect ends the connection.
//   - What it holds is bounded: no stream keeps more than one flow-control window
//     that its reader has not taken, and heads are small.
//   - It is small because every cell has one: net/http in its place, with TLS and
//     all that it touches, cost each box several megabytes
//     (docs/decisions/0011-speak-plainly-to-the-daemon.md).
package h2
