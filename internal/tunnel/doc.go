// Package tunnel is the grammar of a flow through one HTTP/1.1 connection: CONNECT
// (RFC 9110, 9.3.6) for TCP, and connect-udp (RFC 9298) with its capsules (RFC 9297)
// for UDP. Box and guest speak it with the same code.
//
// Its laws:
//   - A head is read whole and judged by hand, before anything is resolved or dialed:
//     what two readers could read in two ways is refused (B34).
//   - Whatever comes out is normalised: a name in its one form, or an address; never
//     bytes as they came (B2, B36).
//   - No field of a head says who asks (B33): none is kept.
//   - Every buffer has a bound, and what is not understood is skipped without keeping it (B44).
package tunnel
