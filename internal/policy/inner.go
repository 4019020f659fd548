package policy

import (
	"skep.dev/skep/internal/flow"
)

// Want is what has to be found out about the agent's first bytes before they
// may go on.
type Want uint8

// WantNothing is an opaque flow, WantFirst its first message (a TLS hello or
// anything else), WantHTTP every request head on the connection.
const (
	WantNothing Want = iota
	WantFirst
	WantHTTP
)

// Inspect says what an allowed request needs (B110, B112).
func Inspect(q flow.Request, p Policy) Want {
	r := deciding(q, p)
	switch {
	case r.Inner == InnerOff:
		return WantNothing
	case r.Inner == InnerTLS:
		return WantFirst
	case q.Name == "":
		return WantNothing
	case q.Port == 80 || r.HTTP:
		return WantHTTP
	}
	return WantFirst
}

// DecideInner decides again, now with the agent's own words in q.Inner: first
// everything that Decide asks, then whether they name the destination (B110 to
// B112, B115). The zero Inner denies where a check is wanted.
func DecideInner(q flow.Request, p Policy) flow.Verdict {
	v := Decide(q, p)
	if !v.Allowed() {
		return v
	}
	if why := innerFault(q, Inspect(q, p), deciding(q, p).Inner); why != flow.None {
		return flow.Verdict{Reason: why, Rule: v.Rule, Line: v.Line}
	}
	return v
}

func innerFault(q flow.Request, want Want, check InnerCheck) flow.Reason {
	if want == WantNothing {
		return flow.None
	}
	switch q.Inner.Protocol {
	case flow.TLS:
		switch {
		case q.Name == "": // by literal with inner: tls: there is no name to compare
			return flow.None
		case want == WantHTTP:
			return flow.HTTPRequired
		case q.Inner.Name == "":
			return flow.TLSNameMissing
		case q.Inner.Name != q.Name:
			return flow.TLSNameMismatch
		}
		return flow.None
	case flow.HTTP:
		switch {
		case want != WantHTTP:
			return flow.TLSRequired
		case q.Inner.Name != q.Name:
			return flow.HTTPHostMismatch
		}
		return flow.None
	case flow.Opaque:
		switch {
		case want == WantHTTP:
			return flow.HTTPRequired
		case check == InnerTLS:
			return flow.TLSRequired
		}
		return flow.None
	}
	return flow.TLSRequired
}

// deciding is the rule that allows q, or the zero Rule, whose defaults are the
// strict ones.
func deciding(q flow.Request, p Policy) Rule {
	v := Decide(q, p)
	if !v.Allowed() {
		return Rule{}
	}
	for i := range p.Rules {
		if r := &p.Rules[i]; r.ID == v.Rule && r.Line == v.Line {
			return *r
		}
	}
	return Rule{}
}
