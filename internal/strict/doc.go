// Package strict reads one YAML document so that nothing in it can be
// misread or pass unseen (L1).
//
// Its laws:
//   - What is not plain YAML data is a fault: anchors, aliases, tags, merge
//     keys, a second document, a key that is not a string, a repeated key.
//   - Every fault has file, line, column, the offending text and the fix.
//   - Reading never stops at the first fault: a [Report] collects all of
//     them, and a caller uses no value while a report has any.
//   - Numbers stay text until a reader with a unit takes them. There is no
//     floating point here (R10).
//
// The package knows no key of any file: profile and config name theirs.
package strict
