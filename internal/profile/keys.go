package profile

import (
	"skep.dev/skep/internal/right/declared"
	"skep.dev/skep/internal/secret/listed"
)

// sectionKeys are all keys of a profile by the mapping in which they stand: ""
// is the top, "x[]" an entry of the list x, "budget.*" the long form of an
// amount. The published schema has the same, and a test keeps it so.
//
// To add a key: write it here, read it in a method of parser, print it in
// Effective, compare it in Narrow, and describe it in docs/profile.md and
// docs/schemas/profile.schema.json.
func sectionKeys() map[string][]string {
	return map[string][]string{
		"": {"version", "paths", "exec", "net", "unlisted", "resolved_addresses", "secrets", "model", "budget",
			"ledger", "home", "spawn", "env", "serves", "extends", "terminal", "policy_endpoint", "agent_socket"},
		"paths[]":              {"path", "rights"},
		"net[]":                declared.NetKeys(),
		"resolved_addresses[]": {"cidr", "ports"},
		"secrets[]":            listed.Keys(),
		"model":                {"roles", "tokens", "usd"},
		"budget":               budgetKeys(),
		"budget.*":             {"limit", "if_available"},
		"ledger":               {"exec", "model"},
		"env":                  {"pass", "set"},
		"agent_socket":         {"keys", "hosts", "ask"},
	}
}

// laterKeys are known, and refused until something enforces them.
func laterKeys() []string {
	return []string{"exec", "spawn", "serves", "extends"}
}
