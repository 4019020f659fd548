package policy

import (
	"fmt"
	"slices"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/right"
)

// Bound is a name and ports to which a secret is bound: TLS to it is read, request by
// request, and nothing else goes there (B123).
type Bound struct {
	Name  string // exact, normalised
	Ports []uint16
}

// bound reports whether a secret is bound to where a flow goes.
func (p Policy) bound(host string, port uint16) bool {
	return host != "" && slices.ContainsFunc(p.Bound, func(b Bound) bool { return b.Name == host && slices.Contains(b.Ports, port) })
}

// Intercepted reports whether an allowed flow is carried request by request (B123).
func Intercepted(q flow.Request, p Policy) bool {
	return q.Transport == flow.TCP && p.bound(q.Name, q.Port)
}

func checkBound(all []Bound) error {
	for _, b := range all {
		if plain, err := name.Host(b.Name); err != nil || plain != b.Name {
			return fmt.Errorf("a secret is bound to %q, which is not a host name in its normal form", b.Name)
		}
		if len(b.Ports) == 0 || slices.Contains(b.Ports, 0) {
			return fmt.Errorf("a secret is bound to %s without a port", b.Name)
		}
	}
	return nil
}

// reads reports whether every request of the rule's flows can be read (B83): over plain
// HTTP, or because a secret is bound to where they go.
func (p Policy) reads(r *Rule) bool {
	if r.HTTP || right.AllHTTP(r.Ports) {
		return true
	}
	if r.Name == "" || r.Name == AnyName {
		return false
	}
	for _, span := range r.Ports {
		for port := uint32(span.First); port <= uint32(span.Last); port++ {
			if port != 80 && !p.bound(r.Name, uint16(port)) {
				return false
			}
		}
	}
	return true
}
