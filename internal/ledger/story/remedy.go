package story

import "skep.dev/skep/internal/ledger/kind"

// Remedy says what would let that pass which b refuses, in words or as a line of a
// profile; "" where nothing was refused or nothing would. A refusal by rules has the
// line in its record; what comes later, in the address or the model, is told here.
func Remedy(b kind.Body) string {
	switch b := b.(type) {
	case *kind.FlowIntent:
		return b.AllowWith
	case *kind.FlowDenied:
		return b.AllowWith
	case *kind.FlowOutcome:
		return ofOutcome(b.Reason)
	case *kind.SecretUsed:
		return ofAgent(b.Reason)
	case *kind.ModelSettled:
		return ofModel(b.Reason)
	}
	return ""
}

func ofOutcome(reason string) string {
	switch reason {
	case "resolved-address-denied":
		return "resolve: [ADDRESS] in its rule, or resolved_addresses: [{cidr: RANGE}], if the address is a private one; " +
			"one of this host's own only by `open` in the operator's ceiling.yaml"
	case "resolve-failed":
		return "a name that this host's resolver finds, or resolve: [ADDRESS] in its rule"
	case "http-host-mismatch", "tls-name-mismatch", "tls-name-missing", "tls-required", "http-required":
		return "what the rule's `inner` and `http` demand of the first bytes; inner: off demands nothing"
	case "ech-refused":
		return "ech: pass in its rule, or a client that sends no Encrypted Client Hello"
	case "no-provider":
		return "a target for the role in config.yaml of the operator"
	}
	return ""
}

func ofAgent(reason string) string {
	switch reason {
	case "key-not-granted":
		return "its fingerprint in agent_socket.keys of the profile"
	case "host-not-granted":
		return "the host in agent_socket.hosts of the profile, with its key in your known_hosts"
	}
	return ""
}

func ofModel(reason string) string {
	switch reason {
	case "insufficient_quota":
		return "model: {tokens: MORE} or {usd: MORE} in the profile, whichever is used up"
	case "no_price":
		return "a price for the target in config.yaml, or model.tokens in the profile in place of model.usd"
	case "model_not_found":
		return "model: {roles: [ROLE]} in the profile, with a target for the role in config.yaml"
	case "script_no_match":
		return "an answer in the script for what was asked"
	}
	return ""
}
