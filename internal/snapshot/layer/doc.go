// Package layer carries a cell's layer out of the one process that may read it
// (S12a), over a seqpacket socket: Serve is that process's body, Client is the
// other end, in skepd (walk, remove, measure) and in skep (walk, open).
//
//	client                     layer process
//	walk                  ->
//	                      <-   entry ... entry, progress, done
//	open side grant path  ->
//	                      <-   file, with one read-only descriptor
//	remove                ->
//	                      <-   progress ..., done
//	measure               ->
//	                      <-   progress ..., done, with the bytes
//	anything              ->
//	                      <-   failure
//
// Its laws:
//   - One message is one packet of at most MaxMessage bytes, begins with the
//     version, and decodes to exactly one value or is refused.
//   - The client believes nothing: it bounds and checks every field. The server
//     opens only regular files, only to read, only beneath its own roots.
//   - A connection has the powers that it was given; the zero Powers has none.
package layer
