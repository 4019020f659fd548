// Package bundle reads what a platform attaches an agent by: who it is, and what it may
// reach (boundary.md, B211).
//
// Its laws:
//   - What is not understood is an error with its line; nothing is read over.
//   - A bundle names files of credentials and never holds one, and no issuer: who vouches
//     for an agent is the operator's word, not the bundle's (B212).
//   - Its rules become the same rights as a profile's (B86).
package bundle
