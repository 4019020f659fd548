package boundary

import (
	"net/netip"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// Permit says that the gate has decided and recorded one Request, under one
// policy (B5, B160). Only Gate makes a valid one.
type Permit struct {
	request flow.Request
	policy  *policy.Policy
	bytes   *Bytes
	idle    time.Duration
}

// Valid reports whether the gate made this permit. A destination opens nothing
// for one that is not.
func (p Permit) Valid() bool { return p.policy != nil }

// Request is what was permitted. The destination to open is in it and nowhere
// else, so that a permit cannot be used for another.
func (p Permit) Request() flow.Request { return p.request }

// Bytes is what the flow may carry, nil without a bound.
func (p Permit) Bytes() *Bytes { return p.bytes }

// Idle is how long nothing may move in the flow before it is closed (B150).
func (p Permit) Idle() time.Duration {
	most := IdleTCP
	if p.request.Transport == flow.UDP {
		most = IdleUDP
	}
	if p.idle <= 0 {
		return most
	}
	return min(p.idle, most)
}

// Keeps reports whether a resolved address of the permitted name may be dialed
// (B102), or whether addr is the permitted literal itself.
func (p Permit) Keeps(addr netip.Addr) bool {
	if !p.Valid() {
		return false
	}
	if p.request.Addr.IsValid() {
		return p.request.Addr == addr
	}
	return policy.Keep(p.request, *p.policy, addr)
}

// Resolve is what the policy says that the name resolves to; nil means: ask (B84).
func (p Permit) Resolve() []netip.Addr {
	if !p.Valid() {
		return nil
	}
	return policy.Resolve(p.request, *p.policy)
}

// Through is the operator's proxy by which the flow leaves; nil: it is dialed (B180).
func (p Permit) Through() *policy.Proxy {
	if !p.Valid() {
		return nil
	}
	return p.policy.Through(p.request)
}

// RefuseMixed reports whether one address that is not kept refuses all (B102).
func (p Permit) RefuseMixed() bool { return !p.Valid() || p.policy.Ceiling.Mixed }

// Inspect says what of the agent's bytes must be read first (B110, B112).
func (p Permit) Inspect() policy.Want {
	if !p.Valid() {
		return policy.WantHTTP
	}
	return policy.Inspect(p.request, *p.policy)
}

// Intercepted says that the flow is carried request by request, because a secret is
// bound to where it goes (B123).
func (p Permit) Intercepted() bool { return p.Valid() && policy.Intercepted(p.request, *p.policy) }

// Strips reports whether the caller's credentials are taken out of what he sends to the
// agent (B171).
func (p Permit) Strips() bool {
	switch {
	case !p.Valid():
		return true
	case p.request.Direction == flow.Out:
		return false
	}
	i, ok := policy.Opened(p.request, *p.policy)
	return !ok || i.Strips()
}

// Correlate is the id that requests which can be read carry to the destination, or ""
// (B84).
func (p Permit) Correlate() string {
	if !p.Valid() || !policy.Correlate(p.request, *p.policy) {
		return ""
	}
	return p.request.ID.String()
}

// DecideInner is the second decision, on the same Request with the agent's own
// words (B110, B115). The zero Permit denies.
func (p Permit) DecideInner(inner flow.Inner) flow.Verdict {
	if !p.Valid() {
		return flow.Verdict{}
	}
	q := p.request
	q.Inner = inner
	return policy.DecideInner(q, *p.policy)
}
