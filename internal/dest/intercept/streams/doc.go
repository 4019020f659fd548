// Package streams carries one HTTP/2 connection (RFC 9113) of an agent to one of its
// destination, and looks at every request and answer on its way.
//
// Its laws:
//   - Each request is judged alone, by its own head. No stream carries anything along
//     for another: not a name, not a place, not a header table.
//   - Windows are the peers' own: what may be sent to one of them is what it has asked
//     for, so that nothing has to be kept for a stream that does not read. Only what is
//     read whole is kept, and there is room for that, or it is refused.
//   - Heads, trailers and data are looked at as their text, whatever frames cut them.
//   - A value goes out after its use is recorded; what is written is overwritten. Heads
//     are written without a table, so that no value stays in one.
//   - What a peer may not send ends the connection; what a cell may send costs it no
//     memory, and too much that carries nothing ends the connection, too.
//   - Nothing is pushed, and a WebSocket is opened only where the destination says that
//     it may be (RFC 8441).
//
// golang.org/x/net/http2 has a framer, but brings net/http, which no box links
// (docs/decisions/0011-speak-plainly-to-the-daemon.md); of it only hpack is here.
package streams
