// Package route turns what leaves a cell natively into requests: virtual DNS,
// the original destination of a redirected connection, the names inside a TLS
// hello or an HTTP head, and the kernel's log of early refusals.
//
// Its laws:
//   - It names and never dials (boundary.md, introduction): nothing here opens
//     a connection.
//   - A DNS answer depends on the name alone, never on policy (B50).
//   - No address serves two names within one generation (B51).
//   - Every parser here faces the agent: it is bounded, refuses what it does not
//     understand, and has a fuzz target. When in doubt whether bytes are TLS,
//     they are TLS, since passing a hello unread is the worse mistake.
package route
