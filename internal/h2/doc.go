// Package h2 is HTTP/2 with prior knowledge (RFC 9113) on one descriptor between
// programs of ours: the box's side of its connections to skepd and to the model
// gateway, and skepd's side of the first.
//
// Its laws:
//   - It does what the peer can ask and refuses all else: a frame that it does not
//     expect ends the connection.
//   - An answer is given whole or not at all: what has no room breaks its call off.
//   - What it holds is bounded: no stream keeps more than one flow-control window
//     that its reader has not taken, and heads are small.
//   - A server holds no more than one window of requests, and a few calls: one that
//     is taken back counts while its handler runs. A client that takes back many, or
//     reads no answers, is cut off.
//   - It is small because every cell has one: net/http in its place, with TLS and
//     all that it touches, cost each box several megabytes
//     (docs/decisions/0011-speak-plainly-to-the-daemon.md).
package h2
