package policy

import (
	"net/netip"
	"slices"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy/address"
	"skep.dev/skep/internal/right"
)

// Keep reports whether an address to which an allowed name resolved may be
// dialed (B102): it is public, or the deciding rule's resolve lists it, or a
// literal rule or resolved_addresses admits it for that port; never what the
// ceiling denies or the floor holds.
func Keep(q flow.Request, p Policy, a netip.Addr) bool {
	a = a.Unmap()
	t := address.New()
	if !a.IsValid() || a.Zone() != "" || p.Ceiling.Proxy.isAt(a, q.Port) || p.deniedAddress(a, q.Transport, q.Port) {
		return false
	}
	if _, on := p.onFloor(t, a, q.Port); on {
		return false
	}
	if !p.keeps(t, p.Rules, p.Resolved, q, a) {
		return false
	}
	return !p.Ceiling.Limits || p.keeps(t, p.Ceiling.Allow, p.Ceiling.Resolved, q, a)
}

// keeps judges one address under one of the two policies. The address hidden in
// a NAT64 or 6to4 address must be kept, too.
func (p Policy) keeps(t address.Tables, rules []Rule, resolved []Range, q flow.Request, a netip.Addr) bool {
	for _, inside := range address.Inside(a) {
		if !p.keeps(t, rules, resolved, q, inside) {
			return false
		}
	}
	if _, isSpecial := t.Special(a); !isSpecial {
		return true
	}
	for _, g := range resolved {
		if g.covers(a, q.Port) {
			return true
		}
	}
	return slices.ContainsFunc(rules, func(r Rule) bool {
		if !r.carries(q.Transport) || !r.Ports.Has(q.Port) {
			return false
		}
		return r.literal(a, t) || r.names(q, t) && r.resolvesTo(a)
	})
}

// Resolve is what the rules say that a name resolves to; nil means: ask. All
// rules for the exact name, port and transport add up.
func Resolve(q flow.Request, p Policy) []netip.Addr {
	var out []netip.Addr
	for _, r := range p.Rules {
		if r.Name == q.Name && r.carries(q.Transport) && r.Ports.Has(q.Port) {
			out = append(out, r.Resolve...)
		}
	}
	return out
}

// Given goes on from a verdict that allows a name whose addresses the rules themselves
// give: if none of them is kept, it is the refusal that the cell's box will come to.
func Given(q flow.Request, p Policy, v flow.Verdict) flow.Verdict {
	addrs := Resolve(q, p)
	if !v.Allowed() || len(addrs) == 0 {
		return v
	}
	if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return Keep(q, p, a) }) {
		return v
	}
	out := flow.Verdict{Reason: flow.ResolvedAddressDenied, Rule: v.Rule, Line: v.Line, AllowWith: NotPermitted}
	for _, a := range addrs {
		if at, on := p.onFloor(address.New(), a.Unmap(), q.Port); on {
			out.AllowWith = openLine(at, q.Port)
			break
		}
	}
	return out
}

// Ports is what the early gate admits for a name over a transport: every port
// that Decide would allow (B14), but for connects of which one alone may open (OnceAnswers).
// The box decides each flow again.
func Ports(host string, t flow.Transport, p Policy) right.Ports {
	if t == flow.UDP {
		return portsThat(host, t, p, func(v flow.Verdict) bool { return v.Allowed() || waits(v) })
	}
	return portsThat(host, t, p, func(v flow.Verdict) bool { return v.Allowed() && !p.IsOnce(v.Rule) })
}

// HeldPorts is where the early gate keeps connects to a name waiting (B140), also those
// that a person has allowed: Ports has these, and goes before.
func HeldPorts(host string, p Policy) right.Ports {
	if !slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Hold > 0 }) {
		return nil
	}
	p.Answers = slices.DeleteFunc(slices.Clone(p.Answers), func(a Answer) bool { return a.Allow })
	return portsThat(host, flow.TCP, p, waits)
}

func portsThat(host string, t flow.Transport, p Policy, so func(flow.Verdict) bool) right.Ports {
	q := flow.Request{Cell: "-", Direction: flow.Out, Wire: flow.Native, Transport: t, Name: host, Count: 1}
	// Rules for other names have no say, and there may be a thousand.
	tables := address.New()
	about := func(rules []Rule) (out []Rule) {
		for _, r := range rules {
			if r.names(q, tables) {
				out = append(out, r)
			}
		}
		return out
	}
	p.Rules, p.Ceiling.Allow, p.Ceiling.Deny = about(p.Rules), about(p.Ceiling.Allow), about(p.Ceiling.Deny)
	cuts := []uint32{80, 81} // of the model gateway
	for _, r := range slices.Concat(p.Rules, p.Ceiling.Allow, p.Ceiling.Deny) {
		for _, part := range r.Ports {
			cuts = append(cuts, uint32(part.First), uint32(part.Last)+1)
		}
	}
	for _, a := range p.Answers {
		if a.Name == host {
			cuts = append(cuts, uint32(a.Port), uint32(a.Port)+1)
		}
	}
	return pieces(cuts, func(port uint16) bool {
		q.Port = port
		return so(Decide(q, p))
	})
}

// deniedAddress reports whether a deny entry of the ceiling holds a, or an IPv4
// address inside it (B87, B105).
func (p Policy) deniedAddress(a netip.Addr, t flow.Transport, port uint16) bool {
	for _, inside := range address.Inside(a) {
		if p.deniedAddress(inside, t, port) {
			return true
		}
	}
	return slices.ContainsFunc(p.Ceiling.Deny, func(r Rule) bool {
		match := r.IP.IsValid() && r.IP == a || r.CIDR.IsValid() && r.CIDR.Contains(a)
		return match && r.forbids(t, port)
	})
}

// onFloor reports whether the floor stands between the cell and a, or an IPv4 address
// inside it, and at which of the two: what opens the one does not open the other. It
// is false for the invalid address of a request by name.
func (p Policy) onFloor(t address.Tables, a netip.Addr, port uint16) (at netip.Addr, on bool) {
	if !a.IsValid() || p.Ceiling.NoFloor {
		return a, false
	}
	for _, inside := range address.Inside(a) {
		if _, on := p.onFloor(t, inside, port); on {
			return inside, true
		}
	}
	if slices.ContainsFunc(p.Ceiling.Open, func(g Range) bool { return g.covers(a, port) }) {
		return a, false
	}
	return a, t.Floor(a) || slices.Contains(p.Ceiling.Own, a)
}
