// Package declared reads rights that a person wrote as YAML: the net rules
// that a profile and the operator's ceiling have in common.
//
// Its laws:
//   - Every form becomes the same right value (B86); what a form leaves out is
//     filled in by the caller's defaults, never guessed.
//   - A rule keeps the line that it came from, for the record and for `why`.
//   - A key whose enforcement is not built is a fault, never ignored.
package declared
