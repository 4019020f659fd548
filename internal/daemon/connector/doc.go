// Package connector attaches agents that another platform runs: for each it starts a box
// of its own, behind a socket that the agent's cell alone is given (boundary.md, sections
// 3 and 18).
//
// Its laws:
//   - One agent, one box, one socket. What fails for one touches no other.
//   - Who an agent is comes from its bundle, and a credential of the operator's issuer
//     says that the bundle is right; unverified is a word of the operator's, and stands in
//     every record of the cell (B212, B213).
//   - A record is durable before its box hears so, and says who it is about by the
//     connector's own word, never the box's.
//   - An agent is detached when its flows are closed and its socket is gone, not before (B162).
//   - It never reads what an agent sends.
package connector
