package address

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Both ends of every range are in it, in every spelling (BX-7).
func TestBX7EveryRangeInEverySpelling(t *testing.T) {
	tables := New()
	if len(tables.special) != 28 {
		t.Fatalf("table S has %d ranges, boundary.md has 28", len(tables.special))
	}
	for _, p := range tables.special {
		for _, a := range []netip.Addr{p.Addr(), last(p)} {
			if _, ok := tables.Special(a); !ok {
				t.Errorf("%s of %s is not special", a, p)
			}
			if a.Is4() {
				mapped := netip.AddrFrom16(a.As16())
				if _, ok := tables.Special(mapped); !mapped.Is4In6() || !ok {
					t.Errorf("%s is not special", mapped)
				}
			}
		}
	}
	for _, s := range []string{
		"169.254.169.254", "::ffff:169.254.169.254",
		"::a9fe:a9fe", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "192.88.99.1", "100:0:0:1::5", "127.9.9.9", "::1",
	} {
		if !tables.Floor(netip.MustParseAddr(s)) {
			t.Errorf("%s must be on the floor", s)
		}
	}
}

func TestPublicAddressesAreOrdinary(t *testing.T) {
	tables := New()
	for _, s := range strings.Fields("1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 172.15.255.255 172.32.0.0 198.17.0.1 223.255.255.255 2606:4700::1 2001:200::1 fbff::1") {
		a := netip.MustParseAddr(s)
		if p, ok := tables.Special(a); ok || tables.Floor(a) {
			t.Errorf("%s is in %s or on the floor", s, p)
		}
	}
}

func TestZeroTablesAndZeroAddressAreRefused(t *testing.T) {
	if _, ok := (Tables{}).Special(netip.MustParseAddr("1.1.1.1")); !ok || !(Tables{}).Floor(netip.MustParseAddr("1.1.1.1")) {
		t.Error("zero tables must call everything special")
	}
	if _, ok := New().Special(netip.Addr{}); !ok || !New().Floor(netip.Addr{}) {
		t.Error("the zero address must be special")
	}
}

func TestWithinSpecial(t *testing.T) {
	tables := New()
	for s, want := range map[string]bool{
		"10.1.0.0/16": true, "10.0.0.0/8": true, "10.0.0.0/7": false, "0.0.0.0/0": false, "::/0": false,
		"::ffff:10.0.0.0/104": true, "fd00::/8": true, "192.168.1.4/32": true, "1.1.1.0/24": false,
	} {
		if _, ok := tables.WithinSpecial(netip.MustParsePrefix(s)); ok != want {
			t.Errorf("%s within one range: %v, want %v", s, ok, want)
		}
	}
}

// What a translation prefix would reach is found, whatever surrounds it.
func TestInsideIsFound(t *testing.T) {
	metadata := netip.MustParseAddr("169.254.169.254")
	rapid.Check(t, func(t *rapid.T) {
		b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
		copy(b[:], []byte{0x20, 0x02, 169, 254, 169, 254})
		if inside := Inside(netip.AddrFrom16(b)); !slices.Equal(inside, []netip.Addr{metadata}) {
			t.Fatalf("%s hides the metadata address", netip.AddrFrom16(b))
		}
	})
	for _, s := range []string{"64:ff9b::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::"} {
		if !slices.Contains(Inside(netip.MustParseAddr(s)), metadata) {
			t.Errorf("%s hides the metadata address", s)
		}
	}
	for _, s := range []string{"169.254.169.254", "::ffff:169.254.169.254", "2606:4700::1", "64:ff9b:2::a9fe:a9fe", "64:ff9b::1:0:a9fe:a9fe"} {
		if inside := Inside(netip.MustParseAddr(s)); len(inside) > 0 {
			t.Errorf("%s hides %s", s, inside)
		}
	}
}

// A network's local prefix may have any length of RFC 6052 that the range allows (RFC
// 8215), with whatever behind the address: what it leads to is always among those
// that are judged, so that no choice of a prefix hides one.
func TestLocalPrefixesOfEveryLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
		copy(b[:], []byte{0, 0x64, 0xff, 0x9b, 0, 1})
		v4 := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "inside"))
		v4[0] = max(v4[0], 1)
		switch rapid.SampledFrom([]int{48, 56, 64, 96}).Draw(t, "bits of the prefix") { // the figure of RFC 6052, section 2.2
		case 48:
			b[6], b[7], b[9], b[10] = v4[0], v4[1], v4[2], v4[3]
		case 56:
			b[7], b[9], b[10], b[11] = v4[0], v4[1], v4[2], v4[3]
		case 64:
			b[9], b[10], b[11], b[12] = v4[0], v4[1], v4[2], v4[3]
		case 96:
			copy(b[12:], v4[:])
		}
		if inside := Inside(netip.AddrFrom16(b)); !slices.Contains(inside, netip.AddrFrom4(v4)) || len(inside) > 4 {
			t.Fatalf("%s hides %v, not %v", netip.AddrFrom16(b), v4, inside)
		}
	})
	for s, want := range map[string]string{
		"64:ff9b:1::":               "[]", // the zeroes of a prefix lead nowhere
		"64:ff9b:1::1":              "[]",
		"64:ff9b:1::808:808":        "[8.8.8.8]",
		"64:ff9b:1::c0a8:101":       "[192.168.1.1]",
		"64:ff9b:1:0:c0:a801:100::": "[192.168.1.1 1.0.0.0]", // of /64, with the other reading of /96
		"64:ff9b:1:808:8:800::":     "[8.8.8.8 8.8.8.0 8.8.0.0]",
	} {
		if got := fmt.Sprint(Inside(netip.MustParseAddr(s))); got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
}

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
