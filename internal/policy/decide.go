package policy

import (
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy/address"
)

// NotPermitted stands in AllowWith where the operator's ceiling, not the
// profile, refuses.
const NotPermitted = "not permitted by the operator"

// Row is where a destination is handled, a row of B70.
type Row uint8

// RowEgress is row 5; RowNone is row 4, and for now row 3, too.
const (
	RowNone Row = iota
	RowModel
	RowDesk
	RowEgress
)

// Dispatch finds the row of a destination. It says nothing about permission.
func Dispatch(q flow.Request) Row {
	switch {
	case q.Name == name.Model:
		return RowModel
	case q.Name == name.Policy:
		return RowDesk
	case q.Name != "" && name.UnderAlt(q.Name):
		return RowNone
	}
	return RowEgress
}

// Decide answers a Request under a Policy (B3, B70, B80 to B87, B100). A request
// that fails its own check gets the zero Verdict.
func Decide(q flow.Request, p Policy) flow.Verdict {
	v, _ := decide(q, p)
	return v
}

// decide is Decide with what the rules that allow q demand of the agent's first
// bytes; beside a refusal that is the zero demand.
func decide(q flow.Request, p Policy) (flow.Verdict, demand) {
	if q.Check() != nil {
		return flow.Verdict{}, demand{}
	}
	if q.Direction != flow.Out {
		return ingress(q, p)
	}
	d := decider{q: q, p: p, t: address.New()}
	switch Dispatch(q) {
	case RowModel:
		return d.model(), demand{}
	case RowDesk:
		return d.desk(), demand{}
	case RowEgress:
		return d.egress()
	}
	// The same answer whether the name exists or not (B62).
	return flow.Verdict{Reason: flow.NotOnAllowlist}, demand{}
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

// desk is row 2 of B70: where a cell reads what it was refused (B230).
func (d *decider) desk() flow.Verdict {
	switch {
	case d.p.NoDesk:
		return flow.Verdict{Reason: flow.NotOnAllowlist}
	case d.q.Transport != flow.TCP:
		return flow.Verdict{Reason: flow.TransportNotAllowed}
	case d.q.Port != 80:
		return flow.Verdict{Reason: flow.PortNotAllowed}
	}
	return flow.Verdict{Decision: flow.Allow, Rule: "policy"}
}

// egress is row 5 of B70: the ceiling's denials, the address walls, then the
// profile and the ceiling's own rules. What the two demand adds up.
func (d *decider) egress() (flow.Verdict, demand) {
	unlisted := flow.NotOnAllowlist
	if d.q.Addr.IsValid() {
		unlisted = flow.IPNotOnAllowlist
		if d.q.Addr.Zone() != "" {
			return flow.Verdict{Reason: flow.ScopedIP}, demand{}
		}
		if name.InPools(d.q.Addr) {
			return flow.Verdict{Reason: unlisted}, demand{} // a name that is gone, or a guess (B55)
		}
	}
	mine := d.judge(d.p.Rules, unlisted)
	bound := d.p.bound(d.q.Name, d.q.Port)
	floor, onFloor := d.p.onFloor(d.t, d.q.Addr, d.q.Port)
	switch {
	case d.p.Ceiling.Proxy.hides(d.q):
		return flow.Verdict{Reason: hidden(d.q, unlisted), AllowWith: NotPermitted}, demand{}
	case d.denied():
		return flow.Verdict{Reason: unlisted, AllowWith: NotPermitted}, demand{}
	case onFloor:
		return flow.Verdict{Reason: unlisted, AllowWith: openLine(floor, d.q.Port)}, demand{}
	case !mine.ok && (d.p.AskUnlisted || d.drafted()):
		mine.ok, mine.demand = true, unlistedDemand(d.q)
	case !mine.ok:
		return flow.Verdict{Reason: mine.why, Rule: mine.rule.ID, Line: mine.rule.Line, AllowWith: allowLine(mine.q)}, demand{}
	}
	if bound && d.q.Transport != flow.TCP { // what it says cannot be read (B123)
		return flow.Verdict{Reason: flow.TransportNotAllowed, Rule: mine.rule.ID, Line: mine.rule.Line}, demand{}
	}
	mine.demand.bound = bound
	if d.p.Ceiling.Limits {
		operators := d.judge(d.p.Ceiling.Allow, unlisted)
		if !operators.ok {
			return flow.Verdict{Reason: operators.why, AllowWith: NotPermitted}, demand{}
		}
		for i := range operators.demand.requests {
			operators.demand.requests[i].operators = true
		}
		mine.demand = mine.demand.and(operators.demand)
	}
	if mine.demand.ask {
		return d.answer(mine)
	}
	return flow.Verdict{Decision: flow.Allow, Rule: mine.rule.ID, Line: mine.rule.Line}, mine.demand
}

// hidden is the reason of what the operator's proxy does not let through.
func hidden(q flow.Request, unlisted flow.Reason) flow.Reason {
	if q.Transport == flow.UDP {
		return flow.TransportNotAllowed
	}
	return unlisted
}

// judged is what one list of rules says to a Request. The zero one denies.
type judged struct {
	ok     bool
	rule   Rule         // the narrowest that allows it, or the one that came nearest
	demand demand       // of all rules that are as narrow
	why    flow.Reason  // unless ok
	q      flow.Request // what was refused: the Request, or the address inside
}

// judge is best; and the same rules must allow each special IPv4 address that a
// literal hides, over the same port and transport (B105).
func (d *decider) judge(rules []Rule, unlisted flow.Reason) judged {
	found := best(rules, d.q, d.t, unlisted)
	if !found.ok {
		return found
	}
	for _, inside := range address.Inside(d.q.Addr) {
		if _, isSpecial := d.t.Special(inside); !isSpecial {
			continue
		}
		q := d.q
		q.Addr = inside
		hidden := best(rules, q, d.t, unlisted)
		if !hidden.ok {
			return hidden
		}
		found.demand = found.demand.and(hidden.demand)
	}
	return found
}

// best finds the narrowest rule that allows q, or the reason why none does and
// the rule that came nearest (B80, B100).
func best(rules []Rule, q flow.Request, t address.Tables, unlisted flow.Reason) judged {
	var fit, near *Rule
	var sum demand
	var limited []*Rule // of those that fit; nil if one admits every request
	carried := false
	for i := range rules {
		r := &rules[i]
		if !r.names(q, t) {
			continue
		}
		if near == nil || narrower(r, near) < 0 {
			near = r
		}
		carries := r.carries(q.Transport)
		carried = carried || carries
		if !carries || !r.Ports.Has(q.Port) {
			continue
		}
		switch {
		case fit == nil || r.width() > fit.width():
			fit, sum, limited = r, r.demands(), nil
			if r.limits() {
				limited = []*Rule{r}
			}
		case r.width() == fit.width():
			sum = sum.and(r.demands())
			if limited = append(limited, r); len(limited) == 1 || !r.limits() {
				limited = nil
			}
			if narrower(r, fit) < 0 {
				fit = r
			}
		}
	}
	switch {
	case fit != nil:
		if limited != nil {
			sum.requests = []requests{{rules: limited}}
		}
		return judged{ok: true, rule: *fit, demand: sum}
	case near == nil:
		return judged{why: unlisted, q: q}
	case carried:
		return judged{rule: *near, why: flow.PortNotAllowed, q: q}
	}
	return judged{rule: *near, why: flow.TransportNotAllowed, q: q}
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
