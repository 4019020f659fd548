package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/right"
)

// Span is a range of addresses with ports, both ends included.
type Span struct {
	First, Last netip.Addr
	Ports       right.Ports
}

// Literals is what the early gate admits for addresses from the start: the ip and
// cidr rules of one transport, without the pools (B14, B55). It may admit more
// than Decide, never less. No two spans share an address and a port, since the
// kernel's sets take no overlap.
func Literals(p Policy, t flow.Transport) []Span {
	granted := granted(p.Rules, t, func(r Rule) bool { return !r.Ask || r.Hold > 0 && t == flow.UDP })
	for _, a := range p.Answers {
		if a.Addr.IsValid() && a.Allow && !a.Used && a.Transport == t && !(a.Once && t == flow.TCP) {
			dst := netip.PrefixFrom(a.Addr, a.Addr.BitLen())
			granted[dst] = join(granted[dst], right.Ports{{First: a.Port, Last: a.Port}})
		}
	}
	return spans(granted)
}

// HeldLiterals is likewise what the early gate keeps waiting of the connects by address
// (B140). What was denied of a range the box refuses.
func HeldLiterals(p Policy) []Span {
	held := granted(p.Rules, flow.TCP, func(r Rule) bool { return r.Hold > 0 })
	for _, a := range p.Answers {
		dst := netip.PrefixFrom(a.Addr, a.Addr.BitLen())
		if ports, is := held[dst]; is && !a.Allow && a.Transport == flow.TCP {
			held[dst] = without(ports, right.Ports{{First: a.Port, Last: a.Port}})
		}
	}
	return spans(held)
}

// granted adds up the ports of those rules for addresses that are so.
func granted(rules []Rule, t flow.Transport, so func(Rule) bool) map[netip.Prefix]right.Ports {
	out := map[netip.Prefix]right.Ports{}
	for _, r := range rules {
		dst := r.CIDR
		if r.IP.IsValid() {
			dst = netip.PrefixFrom(r.IP, r.IP.BitLen())
		}
		if dst.IsValid() && r.carries(t) && so(r) {
			out[dst] = join(out[dst], r.Ports)
		}
	}
	return out
}

// spans makes ranges of them that share nothing.
func spans(granted map[netip.Prefix]right.Ports) []Span {
	var out []Span
	for dst, ports := range granted {
		// Prefixes are nested or apart: what a wider one grants is left out here.
		for wider, more := range granted {
			if wider.Bits() < dst.Bits() && wider.Contains(dst.Addr()) {
				ports = without(ports, more)
			}
		}
		if len(ports) == 0 {
			continue
		}
		for _, s := range outsidePools(dst) {
			out = append(out, Span{s[0], s[1], ports})
		}
	}
	slices.SortFunc(out, func(a, b Span) int { return cmp.Or(a.First.Compare(b.First), a.Last.Compare(b.Last)) })
	return out
}

// outsidePools cuts the cell's own pools out of a prefix.
func outsidePools(p netip.Prefix) [][2]netip.Addr {
	first, last := p.Addr(), lastOf(p)
	for _, pool := range []netip.Prefix{name.Pool4(), name.Pool6()} {
		if !p.Overlaps(pool) || p.Addr().Is4() != pool.Addr().Is4() {
			continue
		}
		var out [][2]netip.Addr
		if first.Less(pool.Addr()) {
			out = append(out, [2]netip.Addr{first, pool.Addr().Prev()})
		}
		if end := lastOf(pool); end.Less(last) {
			out = append(out, [2]netip.Addr{end.Next(), last})
		}
		return out
	}
	return [][2]netip.Addr{{first, last}}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// join and without are the union and the difference of two sets of ports.
func join(a, b right.Ports) right.Ports {
	return combine(a, b, func(x, y bool) bool { return x || y })
}

func without(a, b right.Ports) right.Ports {
	return combine(a, b, func(x, y bool) bool { return x && !y })
}

func combine(a, b right.Ports, keep func(inA, inB bool) bool) right.Ports {
	var cuts []uint32
	for _, r := range slices.Concat(a, b) {
		cuts = append(cuts, uint32(r.First), uint32(r.Last)+1)
	}
	return pieces(cuts, func(port uint16) bool { return keep(a.Has(port), b.Has(port)) })
}

// pieces joins the parts between cuts that are in; within a part all ports are alike.
func pieces(cuts []uint32, in func(port uint16) bool) right.Ports {
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var out right.Ports
	for i := range max(len(cuts), 1) - 1 {
		part := right.PortRange{First: uint16(cuts[i]), Last: uint16(cuts[i+1] - 1)}
		switch n := len(out); {
		case !in(part.First):
		case n > 0 && uint32(out[n-1].Last)+1 == cuts[i]:
			out[n-1].Last = part.Last
		default:
			out = append(out, part)
		}
	}
	return out
}
