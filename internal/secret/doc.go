// Package secret fills values into requests for a cell that never sees them
// (boundary.md, section 10).
//
// Its laws:
//   - It is pure: it reads no file, no environment and no clock, and dials nothing.
//   - A value stands only where its binding says: for its hosts, ports and path, in its
//     places (B121). The zero Binding and the zero Keeper fill in nothing.
//   - A placeholder anywhere else refuses the whole request (B129).
//   - No error, no reason and no formatted text has room for a value (B120).
//   - What is filled in can make no second field and no second request out of one.
package secret
