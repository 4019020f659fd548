package right

import (
	"net/netip"
	"slices"

	"skep.dev/skep/internal/right/request"
)

// Nets is a set of net rules. The nil set allows nothing.
type Nets []Net

// Flow is one attempt, as far as rules look at it. Exactly one of Name and Addr
// is set. Method and Path are those of an HTTP request, or both empty.
type Flow struct {
	Name      string
	Addr      netip.Addr
	Port      uint16
	Transport Transports // one member
	Method    string
	Path      string
}

// Demand is what an allowed flow must put up with.
type Demand struct {
	Ask     bool
	Inner   Inner
	HTTP    bool
	Resolve []netip.Addr
}

// Allows is the meaning of a set (B80): of the rules that match destination,
// port and transport the narrowest decide, and among equals the strictest
// demand counts. Covers is defined by it; the gate has its own, faster form.
func (ns Nets) Allows(f Flow) (Demand, bool) {
	deciding := ns.deciding(f)
	var d Demand
	allowed := false
	for _, n := range deciding {
		d.Inner = max(d.Inner, n.Inner)
		d.HTTP = d.HTTP || n.HTTP
		d.Resolve = append(d.Resolve, n.Resolve...)
		if n.admits(f) {
			allowed = true
			d.Ask = d.Ask || n.Ask
		}
	}
	if !allowed {
		return Demand{}, false
	}
	d.Resolve = sortedSet(d.Resolve, netip.Addr.Compare)
	return d, true
}

func (ns Nets) deciding(f Flow) Nets {
	var best Nets
	narrowest := 0
	for _, n := range ns {
		if !n.matches(f) {
			continue
		}
		switch w := n.Dest.Narrowness(); {
		case w > narrowest:
			best, narrowest = Nets{n}, w
		case w == narrowest:
			best = append(best, n)
		}
	}
	return best
}

// matches looks at destination, port and transport.
func (n Net) matches(f Flow) bool {
	return n.Transports&f.Transport != 0 && n.Ports.Has(f.Port) && n.matchesDest(f)
}

func (n Net) matchesDest(f Flow) bool {
	if f.Name != "" {
		return n.Dest.MatchesName(f.Name)
	}
	return f.Addr.IsValid() && n.Dest.MatchesAddr(f.Addr)
}

// admits looks at what is inside: a rule with methods or paths admits only requests that
// it can see, and one with paths only those whose path reads in one way.
func (n Net) admits(f Flow) bool {
	if len(n.Methods) > 0 && !slices.Contains(n.Methods, f.Method) {
		return false
	}
	if len(n.Paths) == 0 {
		return true
	}
	kind := request.KindOfPath(f.Path)
	return (kind == request.PlainPath || kind == request.SlashedPath && n.EncodedSlash) && request.MatchPath(n.Paths, f.Path)
}

// within tells whether d asks at least as much as the parent's demand.
func (d Demand) within(parent Demand) bool {
	return (d.Ask || !parent.Ask) && d.Inner >= parent.Inner && (d.HTTP || !parent.HTTP) && subset(d.Resolve, parent.Resolve)
}

// Covers is Nets.Covers for one rule on each side.
func (n Net) Covers(child Net) bool { return Nets{n}.Covers(Nets{child}) }

// Covers tells whether every flow that child allows is allowed by ns with the
// same demand or a weaker one (R1).
func (ns Nets) Covers(child Nets) bool {
	_, wider := ns.Wider(child)
	return !wider
}

// Wider finds a flow that child allows and ns does not, or not so easily. It
// tries one flow of each class that the rules of both sets tell apart, so it
// is exact. A label that no rule names is "~" in the answer.
func (ns Nets) Wider(child Nets) (Flow, bool) {
	if len(child) == 0 {
		return Flow{}, false
	}
	theirs, mine := newNetIndex(child), newNetIndex(ns)
	for _, f := range destinations(child, ns) {
		c := theirs.at(f)
		if len(c) == 0 {
			continue
		}
		if found, wider := mine.at(f).widerAt(c, f); wider {
			return found, true
		}
	}
	return Flow{}, false
}

// widerAt compares at one destination; both sets match it.
func (ns Nets) widerAt(child Nets, f Flow) (Flow, bool) {
	requests := requestClasses(child, ns)
	for _, f.Port = range portCuts(child, ns) {
		for _, f.Transport = range []Transports{TCP, UDP} {
			for _, r := range requests {
				f.Method, f.Path = r.method, r.path
				d, allowed := child.Allows(f)
				if !allowed {
					continue
				}
				if p, ok := ns.Allows(f); !ok || !d.within(p) {
					return f, true
				}
			}
		}
	}
	return Flow{}, false
}
