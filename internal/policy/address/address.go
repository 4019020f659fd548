// Package address classifies IP addresses: table S of special-purpose ranges and
// table F, the floor (boundary.md, B104 to B106).
//
// Its laws:
//   - An IPv4-mapped address is judged as the IPv4 address inside; a NAT64 or
//     6to4 address has its own range and another address inside: Inside finds it.
//   - The tables only say what an address is. What follows is policy's word.
//   - An invalid address is special and on the floor: it must never be dialed.
package address

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
)

const special = `0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24
192.0.2.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
::/128 ::1/128 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 5f00::/16
fc00::/7 fe80::/10 fec0::/10 ff00::/8`

// The floor: metadata services of clouds, forms that hide another address, and
// the host's own loopback, which is an interface of the host like any other.
const floor = `169.254.169.254/32 169.254.170.2/32 168.63.129.16/32 100.100.100.200/32 fd00:ec2::254/128
::/96 192.88.99.0/24 100:0:0:1::/64 127.0.0.0/8 ::1/128`

// Tables holds both tables, parsed. Its zero value treats every address as
// special and on the floor.
type Tables struct {
	special, floor []netip.Prefix
}

// parsed is never written again.
var parsed = Tables{special: parse(special), floor: parse(floor)}

// New gives the tables.
func New() Tables { return parsed }

// Special is the range of table S that holds a, after removing an IPv4-mapped
// prefix. ok is false for an ordinary public address.
func (t Tables) Special(a netip.Addr) (in netip.Prefix, ok bool) {
	if len(t.special) == 0 || !a.IsValid() {
		return netip.Prefix{}, true
	}
	return find(t.special, a)
}

// Floor reports whether a itself is one of table F; what is inside it is judged
// by itself.
func (t Tables) Floor(a netip.Addr) bool {
	if len(t.floor) == 0 || !a.IsValid() {
		return true
	}
	_, on := find(t.floor, a)
	return on
}

// WithinSpecial is the one S range that holds the whole of p. A prefix that is
// not within one admits no special address (B106).
func (t Tables) WithinSpecial(p netip.Prefix) (netip.Prefix, bool) {
	p = Unmap(p)
	for _, s := range t.special {
		if s.Bits() <= p.Bits() && s.Contains(p.Addr()) {
			return s, true
		}
	}
	return netip.Prefix{}, false
}

// Inside are the IPv4 addresses that an address may lead to: by NAT64 (RFC 6052) and
// by 6to4 (RFC 3056). Of the range for local NAT64 prefixes (RFC 8215) a network uses
// one of any length from 48 to 96, which is not ours to know, so that each reading
// counts. A reading within 0.0.0.0/8, where no packet goes, is none: it is of the
// zeroes of a longer prefix or of what stands behind a shorter one. A prefix that a
// network took from its own addresses is not seen.
func Inside(a netip.Addr) []netip.Addr {
	if !a.Is6() || a.Is4In6() {
		return nil
	}
	b := a.As16()
	switch {
	case bytes.HasPrefix(b[:], []byte{0, 0x64, 0xff, 0x9b, 0, 1}):
		var all []netip.Addr
		for _, prefix := range [...]int{48, 56, 64, 96} {
			if v4 := embedded(b, prefix); v4.As4()[0] != 0 && !slices.Contains(all, v4) {
				all = append(all, v4)
			}
		}
		return all
	case bytes.HasPrefix(b[:], []byte{0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0}):
		return []netip.Addr{embedded(b, 96)}
	case b[0] == 0x20 && b[1] == 0x02:
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	}
	return nil
}

// embedded is the IPv4 address behind a NAT64 prefix of so many bits. Byte 8 is not
// part of it (RFC 6052, section 2.2).
func embedded(b [16]byte, prefix int) netip.Addr {
	var v4 [4]byte
	at := prefix / 8
	for i := range v4 {
		if at == 8 {
			at++
		}
		v4[i] = b[at]
		at++
	}
	return netip.AddrFrom4(v4)
}

// Unmap turns a prefix of IPv4-mapped addresses into the IPv4 prefix.
func Unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked()
	}
	return p.Masked()
}

func find(table []netip.Prefix, a netip.Addr) (netip.Prefix, bool) {
	a = a.Unmap().WithZone("")
	for _, p := range table {
		if p.Contains(a) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

func parse(words string) []netip.Prefix {
	var out []netip.Prefix
	for _, w := range strings.Fields(words) {
		out = append(out, netip.MustParsePrefix(w))
	}
	return out
}
