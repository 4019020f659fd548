package policy

import (
	"fmt"
	"net/netip"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/flow/limit"
)

// Ingress is one port of the cell's own loopback at which its agent is reached. It is
// fixed before anybody asks for it: nothing is registered at run time (B170), and what a
// caller says selects nothing (B172).
type Ingress struct {
	Port    uint16
	ID      string // what it is called as a rule
	Line    int    // of the profile that serves it; 0 where a person opened it
	Person  bool   // the cell's owner opened it from the host, for himself (B178)
	Forward bool   // the caller's credentials are passed on (B171)
}

// The ids of the two that there are.
const (
	Serves  = "serves"
	Forward = "forward"
)

// IngressAt is the place of a cell's own where a delivery to its agent goes: the address
// of the Request of one.
func IngressAt() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }

// Opened is what opens the port of a delivery, if anything does. What a person opened for
// himself is plain TCP of the kernel, what the agent serves comes by its ingress socket:
// one does not open the other.
func Opened(q flow.Request, p Policy) (Ingress, bool) {
	if q.Direction != flow.In || q.Transport != flow.TCP || q.Addr != IngressAt() {
		return Ingress{}, false
	}
	for _, i := range p.Ingress {
		if i.Port == q.Port && i.Person == (q.Wire == flow.Native) && limit.CheckServed(i.Port) == nil {
			return i, true
		}
	}
	return Ingress{}, false
}

// Strips reports whether the caller's credentials are taken out of what he sends to the
// agent, which therefore has to be HTTP (B171). The cell's owner speaks to his own agent, and
// for himself.
func (i Ingress) Strips() bool { return !i.Person && !i.Forward }

// ingress decides a delivery (B170, B172).
func ingress(q flow.Request, p Policy) (flow.Verdict, demand) {
	i, ok := Opened(q, p)
	if !ok {
		return flow.Verdict{Reason: flow.PortNotPermitted}, demand{}
	}
	d := demand{inner: InnerOff, inward: true, http: i.Strips()}
	return flow.Verdict{Decision: flow.Allow, Rule: i.ID, Line: i.Line}, d
}

// checkIngress reports a port that cannot be served.
func checkIngress(all []Ingress) error {
	for _, i := range all {
		if err := limit.CheckServed(i.Port); err != nil {
			return fmt.Errorf("ingress %q: %w", i.ID, err)
		}
	}
	return nil
}
