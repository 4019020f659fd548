// Package ws reads the frames of a WebSocket (RFC 6455) as they pass, each direction by
// itself and without a connection: bytes go in, and what may go on comes out.
//
// Its laws:
//   - No extension is negotiated, so that a frame has its text as it is. One that says
//     otherwise ends both directions.
//   - Nothing waits for the end of a frame or a message, but a text message from the
//     agent where values are filled in: that is read whole, to secret.MaxText.
//   - A value goes out after its use is recorded, or not at all.
//   - A placeholder is found however messages, fragments and bytes cut it. So is a value
//     from the destination, before it has passed.
package ws
