// Package datagram relays the UDP flow of an agent: whole payloads, both ways, between
// two connections of which each read and each write is one.
//
// Its laws:
//   - A payload is passed on whole or not at all, and counted when it was passed on.
//   - An agent that does not read loses the oldest payloads that wait for it, never more
//     memory than the queue's (boundary.md, B150).
//   - When either side ends or fails, the flow is over (B44).
package datagram
