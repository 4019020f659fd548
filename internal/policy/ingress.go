package policy

import (
	"fmt"
	"net/netip"

	"skep.dev/skep/internal/flow"
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

// The ports at which the boundary itself listens in a native cell (B10). They are nobody's
// to serve.
const (
	firstOwnPort = 65001
	lastOwnPort  = 65053
)

// CheckServed says why a port cannot be served, if it cannot.
func CheckServed(port uint16) error {
	switch {
	case port == 0:
		return fmt.Errorf("port 0: want 1 to 65535")
	case port >= firstOwnPort && port <= lastOwnPort:
		return fmt.Errorf("port %d: %d to %d are the boundary's own", port, firstOwnPort, lastOwnPort)
	}
	return nil
}

// Opened is what opens the port of a delivery, if anything does. What a person opened for
// himself is plain TCP of the kernel, what the agent serves comes by its ingress socket:
// one does not open the other.
func Opened(q flow.Request, p Policy) (Ingress, bool) {
	if q.Direction != flow.In || q.Transport != flow.TCP || q.Addr != IngressAt() {
		return Ingress{}, false
	}
	for _, i := range p.Ingress {
		if i.Port == q.Port && i.Person == (q.Wire == flow.Native) && CheckServed(i.Port) == nil {
			return i, true
		}
	}
	return Ingress{}, false
}

// ingress decides a delivery (B170, B172).
func ingress(q flow.Request, p Policy) flow.Verdict {
	if i, ok := Opened(q, p); ok {
		return flow.Verdict{Decision: flow.Allow, Rule: i.ID, Line: i.Line}
	}
	return flow.Verdict{Reason: flow.PortNotPermitted}
}

// checkIngress reports a port that cannot be served.
func checkIngress(all []Ingress) error {
	for _, i := range all {
		if err := CheckServed(i.Port); err != nil {
			return fmt.Errorf("ingress %q: %w", i.ID, err)
		}
	}
	return nil
}
