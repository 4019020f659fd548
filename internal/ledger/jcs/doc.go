// Package jcs writes and reads the one JSON form that the ledger hashes: RFC
// 8785 canonical JSON, restricted to objects, arrays, strings, booleans and
// null.
//
// Its laws:
//   - There are no numbers. Every integer is a decimal string (D2), so no
//     reader can round it and no float can appear.
//   - A value has exactly one encoding: members sorted by UTF-16 code units,
//     no white space, the shortest escapes. [Valid] refuses any other.
//   - A byte string ([Bytes]) is JSON text if it is valid UTF-8 without
//     U+0000, else {"b64": "..."}; nothing that a cell sent is lost or bent.
//   - Decoding is strict: an unknown member, a missing one, or a non-canonical
//     byte is an error, never a default.
package jcs
