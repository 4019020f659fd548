// Package name parses the names by which things are reached.
//
// Its laws:
//   - There is one function that normalises a host name, for policy, DNS and
//     the wire (boundary.md, B36): two spellings of one name are equal here or
//     one of them is refused.
//   - What looks like an address is an address in its one strict form, or it is
//     refused (B37): "2130706433" and "0x7f.1" are never names.
//   - Names under alt are Skep's own; they never leave the host (B70).
package name
