package box

import (
	"fmt"
	"net/netip"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
)

// policyOf reads the policy of an assignment. A value that does not parse is an
// error: a rule that is not understood must not be dropped (B88).
func policyOf(m *skepv1.BoxPolicy, own []netip.Addr) (policy.Policy, error) {
	c := m.GetCeiling()
	r := reader{}
	p := policy.Policy{
		Version: m.GetVersion(), Rules: r.rules(m.GetRules()), Resolved: r.ranges(m.GetResolvedAddresses()), Model: m.GetModel(),
		Ceiling: policy.Ceiling{
			Limits: c.GetLimits(), Allow: r.rules(c.GetAllow()), Resolved: r.ranges(c.GetResolvedAddresses()), Deny: r.rules(c.GetDeny()),
			Open: r.ranges(c.GetOpen()), NoFloor: c.GetNoFloor(), Mixed: c.GetMixedRefuse(), Own: own,
		},
	}
	if m == nil {
		r.fail(fmt.Errorf("there is none"))
	}
	if r.err != nil {
		return policy.Policy{}, fmt.Errorf("read the policy: %w", r.err)
	}
	return p, nil
}

// reader turns messages into values and keeps the first fault.
type reader struct{ err error }

func (r *reader) fail(err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
}

func (r *reader) rules(in []*skepv1.BoxRule) []policy.Rule {
	var out []policy.Rule
	for _, m := range in {
		rule := policy.Rule{
			ID: m.GetId(), Line: int(m.GetLine()), Name: m.GetName(), Suffix: m.GetSuffix(), Depth: int(m.GetDepth()),
			Ports: r.ports(m.GetPorts()), TCP: m.GetTcp(), UDP: m.GetUdp(), HTTP: m.GetHttp(), Inner: r.inner(m.GetInner()),
			Resolve: r.addrs(m.GetResolve()),
		}
		if m.GetIp() != "" {
			rule.IP = r.addr(m.GetIp())
		}
		if m.GetCidr() != "" {
			rule.CIDR = r.prefix(m.GetCidr())
		}
		out = append(out, rule)
	}
	return out
}

func (r *reader) ranges(in []*skepv1.BoxRange) []policy.Range {
	var out []policy.Range
	for _, m := range in {
		out = append(out, policy.Range{CIDR: r.prefix(m.GetCidr()), Ports: r.ports(m.GetPorts())})
	}
	return out
}

func (r *reader) ports(in []*skepv1.BoxPorts) right.Ports {
	var ranges []right.PortRange
	for _, m := range in {
		if m.GetFirst() > 65535 || m.GetLast() > 65535 {
			r.fail(fmt.Errorf("ports %d-%d", m.GetFirst(), m.GetLast()))
			return nil
		}
		ranges = append(ranges, right.PortRange{First: uint16(m.GetFirst()), Last: uint16(m.GetLast())})
	}
	ports, err := right.NewPorts(ranges...)
	r.fail(err)
	return ports
}

func (r *reader) inner(s string) policy.InnerCheck {
	switch s {
	case "":
		return policy.InnerDefault
	case "off":
		return policy.InnerOff
	case "check":
		return policy.InnerName
	case "tls":
		return policy.InnerTLS
	}
	r.fail(fmt.Errorf("inner %q", s))
	return policy.InnerTLS
}

func (r *reader) addr(s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	r.fail(err)
	return a.Unmap()
}

func (r *reader) addrs(in []string) []netip.Addr {
	var out []netip.Addr
	for _, s := range in {
		out = append(out, r.addr(s))
	}
	return out
}

func (r *reader) prefix(s string) netip.Prefix {
	p, err := netip.ParsePrefix(s)
	r.fail(err)
	return p
}

// names is what the host knows about names and about itself.
type names struct {
	resolvers []netip.AddrPort
	hosts     map[string][]netip.Addr
	own       []netip.Addr
}

// namesOf reads a resolver update. A line of the hosts file that is no name or
// no address is skipped: it is the host's file, not ours, and grants nothing.
func namesOf(m *skepv1.ResolverUpdate) names {
	n := names{hosts: map[string][]netip.Addr{}}
	for _, s := range m.GetResolvers() {
		if a, err := netip.ParseAddrPort(s); err == nil {
			n.resolvers = append(n.resolvers, a)
		}
	}
	for _, h := range m.GetHosts() {
		host, err := name.Host(h.GetName())
		if err != nil {
			continue
		}
		for _, s := range h.GetAddresses() {
			if a, err := netip.ParseAddr(s); err == nil {
				n.hosts[host] = append(n.hosts[host], a.Unmap())
			}
		}
	}
	for _, s := range m.GetOwnAddresses() {
		if a, err := netip.ParseAddr(s); err == nil {
			n.own = append(n.own, a.Unmap().WithZone(""))
		}
	}
	return n
}
