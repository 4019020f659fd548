package right

import "net/netip"

// specialRanges is table S of B104: special-purpose ranges that a name may not
// resolve to and that only a rule inside one of them opens.
func specialRanges() []netip.Prefix {
	return []netip.Prefix{
		v4(0, 0, 0, 0, 8), v4(10, 0, 0, 0, 8), v4(100, 64, 0, 0, 10), v4(127, 0, 0, 0, 8),
		v4(169, 254, 0, 0, 16), v4(172, 16, 0, 0, 12), v4(192, 0, 0, 0, 24), v4(192, 0, 2, 0, 24),
		v4(192, 168, 0, 0, 16), v4(198, 18, 0, 0, 15), v4(198, 51, 100, 0, 24), v4(203, 0, 113, 0, 24),
		v4(224, 0, 0, 0, 4), v4(240, 0, 0, 0, 4),
		v6(128), v6(128, 0, 0, 0, 0, 0, 0, 0, 1), v6(96, 0x64, 0xff9b), v6(48, 0x64, 0xff9b, 1),
		v6(64, 0x100), v6(23, 0x2001), v6(32, 0x2001, 0xdb8), v6(16, 0x2002), v6(20, 0x3fff),
		v6(16, 0x5f00), v6(7, 0xfc00), v6(10, 0xfe80), v6(10, 0xfec0), v6(8, 0xff00),
	}
}

// Special gives the range of table S that holds an address.
func Special(a netip.Addr) (netip.Prefix, bool) {
	for _, p := range specialRanges() {
		if p.Contains(a.Unmap()) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// InOneSpecial tells whether a prefix lies wholly inside one range of table S.
func InOneSpecial(p netip.Prefix) bool {
	s, ok := Special(p.Addr())
	return ok && s.Bits() <= p.Bits()
}

func v4(a, b, c, d byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b, c, d}), bits)
}

// v6 takes the leading groups of an address; the rest are zero.
func v6(bits int, groups ...uint16) netip.Prefix {
	var raw [16]byte
	for i, g := range groups {
		raw[2*i], raw[2*i+1] = byte(g>>8), byte(g)
	}
	return netip.PrefixFrom(netip.AddrFrom16(raw), bits)
}
