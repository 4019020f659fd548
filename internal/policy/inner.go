package policy

import (
	"slices"
	"time"

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

// demand is what rules ask of the agent's first bytes. The zero demand is the
// default of names.
type demand struct {
	inner    InnerCheck
	http     bool
	inward   bool       // a delivery, whose caller says nothing that is compared
	bound    bool       // a secret is bound to where the flow goes
	requests []requests // each of them must admit a request

	noECH     bool
	correlate bool
	ask       bool
	hold      time.Duration // of ask
}

// demands is the rule's own, with the default of its kind (B110). A literal that
// must speak HTTP is checked: its Host must be the address (B112).
func (r *Rule) demands() demand {
	d := demand{inner: r.Inner, http: r.HTTP, noECH: r.NoECH, correlate: r.Correlate, ask: r.Ask, hold: r.Hold}
	switch {
	case d.inner != InnerDefault:
	case r.isLiteral() && !r.HTTP:
		d.inner = InnerOff
	default:
		d.inner = InnerName
	}
	return d
}

// and is the stricter of each.
func (d demand) and(other demand) demand {
	out := demand{inner: max(d.inner, other.inner), http: d.http || other.http, bound: d.bound || other.bound, requests: d.requests, correlate: d.correlate || other.correlate,
		noECH: d.noECH || other.noECH, ask: d.ask || other.ask, hold: max(d.hold, other.hold)}
	if len(other.requests) > 0 {
		out.requests = slices.Concat(d.requests, other.requests)
	}
	return out
}

// wants says what has to be found out about a flow to this port.
func (d demand) wants(port uint16) Want {
	switch {
	case d.bound: // its requests are judged inside TLS
		return WantFirst
	case d.http, len(d.requests) > 0:
		return WantHTTP
	case d.inner == InnerOff:
		return WantNothing
	case d.inner != InnerTLS && port == 80:
		return WantHTTP
	}
	return WantFirst
}

// Inspect says what an allowed request needs (B110, B112).
func Inspect(q flow.Request, p Policy) Want {
	_, d := decide(q, p)
	return d.wants(q.Port)
}

// DecideInner decides again, now with the agent's own words in q.Inner: first
// everything that Decide asks, then whether they name the destination (B110 to
// B112, B115). The zero Inner denies where a check is wanted.
func DecideInner(q flow.Request, p Policy) flow.Verdict {
	v, d := decide(q, p)
	if !v.Allowed() {
		return v
	}
	if why := d.fault(q); why != flow.None {
		return flow.Verdict{Reason: why, Rule: v.Rule, Line: v.Line}
	}
	if d.bound && q.Inner.Method == "" {
		return v // the TLS hello; each request comes here with its own words
	}
	for _, r := range d.requests {
		if refused := r.judge(q); refused.Reason != flow.None {
			return refused
		}
	}
	return v
}

// host is what Host must be beside the port (B112).
func host(q flow.Request) string {
	if q.Name != "" {
		return q.Name
	}
	return q.Addr.String()
}

// fault is what is wrong with what the agent said.
func (d demand) fault(q flow.Request) flow.Reason {
	want := d.wants(q.Port)
	switch {
	case want == WantNothing:
		return flow.None
	case d.inward && q.Inner.Protocol == flow.HTTP: // whatever it calls the agent
		return flow.None
	case d.inward:
		return flow.HTTPRequired
	}
	switch q.Inner.Protocol {
	case flow.TLS:
		switch {
		case want == WantHTTP:
			return flow.HTTPRequired
		case d.noECH && q.Inner.ECH:
			return flow.ECHRefused
		case q.Name == "": // by literal with inner: tls: there is no name to compare
			return flow.None
		case q.Inner.Name == "":
			return flow.TLSNameMissing
		case q.Inner.Name != q.Name:
			return flow.TLSNameMismatch
		}
		return flow.None
	case flow.HTTP:
		switch {
		case want != WantHTTP, d.inner == InnerTLS, d.bound:
			return flow.TLSRequired
		case q.Inner.Name != host(q):
			return flow.HTTPHostMismatch
		}
		return flow.None
	case flow.Opaque:
		switch {
		case want == WantHTTP:
			return flow.HTTPRequired
		case d.inner == InnerTLS, d.bound:
			return flow.TLSRequired
		}
		return flow.None
	}
	return flow.TLSRequired
}
