package policy

import (
	"slices"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy/address"
)

// NotPermitted stands in AllowWith where the operator's ceiling, not the
// profile, refuses.
const NotPermitted = "not permitted by the operator"

// Row is where a destination is handled, a row of B70.
type Row uint8

// RowEgress is row 5; RowNone is row 4, and for now rows 2 and 3, too.
const (
	RowNone Row = iota
	RowModel
	RowEgress
)

// Dispatch finds the row of a destination. It says nothing about permission.
func Dispatch(q flow.Request) Row {
	switch {
	case q.Name == name.Model:
		return RowModel
	case q.Name != "" && name.UnderAlt(q.Name):
		return RowNone
	}
	return RowEgress
}

// Decide answers a Request under a Policy (B3, B70, B80 to B87, B100). A request
// that fails its own check gets the zero Verdict.
func Decide(q flow.Request, p Policy) flow.Verdict {
	if q.Check() != nil {
		return flow.Verdict{}
	}
	if q.Direction != flow.Out {
		return flow.Verdict{Reason: flow.PortNotPermitted}
	}
	d := decider{q: q, p: p, t: address.New()}
	switch Dispatch(q) {
	case RowModel:
		return d.model()
	case RowEgress:
		return d.egress()
	}
	// The same answer whether the name exists or not (B62).
	return flow.Verdict{Reason: flow.NotOnAllowlist}
}

type decider struct {
	q flow.Request
	p Policy
	t address.Tables
}

func (d *decider) model() flow.Verdict {
	switch {
	case !d.p.Model:
		return flow.Verdict{Reason: flow.NotOnAllowlist, AllowWith: "model: {roles: [ROLE]}"}
	case d.q.Transport != flow.TCP:
		return flow.Verdict{Reason: flow.TransportNotAllowed}
	case d.q.Port != 80:
		return flow.Verdict{Reason: flow.PortNotAllowed}
	}
	return flow.Verdict{Decision: flow.Allow, Rule: "model"}
}

// egress is row 5 of B70: the ceiling's denials, the address walls, then the
// profile and the ceiling's own rules.
func (d *decider) egress() flow.Verdict {
	unlisted := flow.NotOnAllowlist
	if d.q.Addr.IsValid() {
		unlisted = flow.IPNotOnAllowlist
		if d.q.Addr.Zone() != "" {
			return flow.Verdict{Reason: flow.ScopedIP}
		}
		if name.InPools(d.q.Addr) {
			return flow.Verdict{Reason: unlisted} // a name that is gone, or a guess (B55)
		}
	}
	rule, why := d.best(d.p.Rules, unlisted)
	switch {
	case d.denied(), d.p.ceilingFloor(d.t, d.q.Addr, d.q.Port):
		return flow.Verdict{Reason: unlisted, AllowWith: NotPermitted}
	case why != flow.None:
		return flow.Verdict{Reason: why, Rule: rule.ID, Line: rule.Line, AllowWith: allowLine(d.q)}
	}
	if d.p.Ceiling.Limits {
		if _, why := d.best(d.p.Ceiling.Allow, unlisted); why != flow.None {
			return flow.Verdict{Reason: why, AllowWith: NotPermitted}
		}
	}
	return flow.Verdict{Decision: flow.Allow, Rule: rule.ID, Line: rule.Line}
}

// best is the narrowest rule that allows the request, or the reason why none
// does and the rule that came nearest (B100).
func (d *decider) best(rules []Rule, unlisted flow.Reason) (Rule, flow.Reason) {
	var here, fit []*Rule
	transport := false
	for i := range rules {
		r := &rules[i]
		if !d.admits(r) {
			continue
		}
		here = append(here, r)
		switch {
		case r.carries(d.q.Transport) && r.Ports.Has(d.q.Port):
			fit = append(fit, r)
		case r.carries(d.q.Transport):
			transport = true
		}
	}
	switch {
	case len(fit) > 0:
		return *slices.MinFunc(fit, narrower), flow.None
	case len(here) == 0:
		return Rule{}, unlisted
	case transport:
		return *slices.MinFunc(here, narrower), flow.PortNotAllowed
	}
	return *slices.MinFunc(here, narrower), flow.TransportNotAllowed
}

// admits is names, and for a literal that hides a special IPv4 address the same
// rule or another must admit the hidden one (B105).
func (d *decider) admits(r *Rule) bool {
	if !r.names(d.q, d.t) {
		return false
	}
	inside, hides := address.Inside(d.q.Addr)
	if !hides {
		return true
	}
	if _, isSpecial := d.t.Special(inside); !isSpecial {
		return true
	}
	for i := range d.p.Rules {
		if d.p.Rules[i].literal(inside, d.t) {
			return true
		}
	}
	return false
}

// denied reports whether a deny entry of the ceiling matches. Here a prefix
// means all that it holds: B106 protects, and must not weaken a denial.
func (d *decider) denied() bool {
	for i := range d.p.Ceiling.Deny {
		r := &d.p.Ceiling.Deny[i]
		if d.q.Name != "" && r.names(d.q, d.t) && r.forbids(d.q.Transport, d.q.Port) {
			return true
		}
	}
	return d.q.Addr.IsValid() && d.p.deniedAddress(d.q.Addr, d.q.Transport, d.q.Port)
}

// forbids: a deny entry without ports or transports forbids all of them.
func (r *Rule) forbids(t flow.Transport, port uint16) bool {
	return (r.carries(t) || !r.TCP && !r.UDP) && (len(r.Ports) == 0 || r.Ports.Has(port))
}
