// Package policy decides whether a Request may open.
//
// Its laws:
//   - Decide is pure: no clock, no I/O, no state. Equal arguments give equal
//     verdicts, and whatever no rule allows is denied (boundary.md, B80).
//   - A name is allowed by a name rule only, a literal by an ip or cidr rule
//     only (B100). Names under alt are never under the rules at all (B70).
//   - The operator's ceiling is a second policy. Both must allow, and its deny
//     entries beat every allow (B87). The floor is part of it (B105).
//   - A destination that is denied gives nothing away: the reason names the port
//     or the transport only where a rule names the destination (B62, B100).
package policy
