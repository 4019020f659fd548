package name

import "net/netip"

// Addresses that stand for names inside a cell (B11, B50, B51). They are
// functions, since a netip value cannot be a constant.

// Pool4 and Pool6 are where synthetic addresses come from.
func Pool4() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10) }

// Pool6 is the IPv6 pool, 100::/64.
func Pool6() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 1}), 64) }

// Reserved4 and Reserved6 are the parts of the pools that are never handed out.
func Reserved4() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 127, 255}), 24)
}

// Reserved6 is the top /120 of the IPv6 pool.
func Reserved6() netip.Prefix { return netip.PrefixFrom(top6(0), 120) }

// ShutMark is the address that stands in the early gate's set while no new flow is let
// in. Nothing else has it: it is given to no name (B51), and to no rule.
func ShutMark() netip.Addr { return netip.AddrFrom4([4]byte{100, 127, 255, 252}) }

// Resolver4 and Resolver6 are where the cell's programs send DNS queries.
func Resolver4() netip.Addr { return netip.AddrFrom4([4]byte{100, 127, 255, 253}) }

// Resolver6 is the resolver's IPv6 address.
func Resolver6() netip.Addr { return top6(0xfd) }

// Cell4 and Cell6 are the cell's own addresses on lo.
func Cell4() netip.Addr { return netip.AddrFrom4([4]byte{100, 127, 255, 254}) }

// Cell6 is the cell's IPv6 address.
func Cell6() netip.Addr { return top6(0xfe) }

// InPools reports whether an address, unmapped, lies in a pool (B55).
func InPools(a netip.Addr) bool {
	a = a.Unmap()
	return Pool4().Contains(a) || Pool6().Contains(a)
}

func top6(last byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 1, 8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff, 12: 0xff, 13: 0xff, 14: 0xff, 15: last})
}
