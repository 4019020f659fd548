// Package intercept carries a TLS flow to a name to which a secret is bound: it ends
// the cell's TLS with a leaf of the cell's own authority, reads each request, fills
// values in, and watches the answers (boundary.md, B123 to B130). It speaks HTTP/1.1
// here, and HTTP/2 in streams: what the destination has chosen of what the agent speaks.
//
// Its laws:
//   - The destination is connected and verified first, for the permitted name. Where it
//     is not, no byte of a request is sent (B126).
//   - Each request is judged alone, under a valid permit: nothing of an earlier one
//     counts for it, and over HTTP/1.1 none is read before the one before it is
//     answered (B127).
//   - A value is sent after its use is recorded, or not at all.
//   - An answer is cut before a value in it has passed (B130).
//   - It reads contents, not framing: a placeholder or value that is cut by chunks or
//     frames is found. Chunks are written anew; trailers pass, but no field of theirs by
//     which a body could end elsewhere.
//   - What is spoken after an upgrade is read as frames, if it is a WebSocket, and as it
//     is if not. h2c is not offered.
package intercept
