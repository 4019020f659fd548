package flow

import "time"

// Decision is what may happen to a Request. The zero Decision is Deny (B3).
type Decision uint8

// Deny refuses, Allow opens, Ask refuses and asks a person.
const (
	Deny Decision = iota
	Allow
	Ask
)

// String is "deny", "allow" or "ask"; an unknown value reads as deny.
func (d Decision) String() string {
	switch d {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	}
	return "deny"
}

// Verdict answers one Request. The zero Verdict denies.
type Verdict struct {
	Decision  Decision
	Hold      time.Duration // only with Ask
	Reason    Reason        // why not; None on Allow
	Rule      string        // id of the rule that decided
	Line      int           // its line in the profile; 0 where there is none
	AllowWith string        // the profile line that would allow it; empty where none may
}

// Allowed reports whether the flow may open now.
func (v Verdict) Allowed() bool { return v.Decision == Allow }

// Refusal is the reason to show and record for a verdict that does not allow.
// A denial that names no reason came from a Verdict nobody filled in, which is
// what a missing policy looks like.
func (v Verdict) Refusal() Reason {
	if v.Reason == None && v.Decision != Allow {
		return PolicyUnavailable
	}
	return v.Reason
}
