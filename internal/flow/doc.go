// Package flow is the vocabulary of one attempt to reach one destination.
//
// Its laws:
//   - A Request holds normalised values only, never bytes that an agent wrote
//     (boundary.md, B2). Who builds one has parsed first.
//   - The zero Request is not valid and the zero Verdict denies (B3).
//   - Reasons are a closed set: each has one token, one fixed sentence, one
//     status and its RFC 9209 error types (B61, B63). No code outside this
//     package makes up a token or a sentence.
//   - It imports the standard library only, so that everything may import it.
package flow
