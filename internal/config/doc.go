// Package config reads what an operator sets: config.yaml (targets and roles
// of models) and ceiling.yaml (what no profile may pass).
//
// Its laws:
//   - As strict as a profile: each fault has its line, all at once.
//   - A key names the file that holds a secret, never the secret.
//   - The ceiling is a second policy that an agent cannot reach: both must
//     allow, and its deny rules beat every allow (B87). An absent ceiling file
//     is the default ceiling; one that cannot be read is an error, never that.
//   - Parsing does no I/O.
package config
