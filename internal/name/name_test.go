package name

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestHost(t *testing.T) {
	for in, want := range map[string]string{
		"ok.test": "ok.test", "OK.TEST.": "ok.test", "_dmarc.ok.test": "_dmarc.ok.test",
		"bücher.example": "xn--bcher-kva.example", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"XN--BCHER-KVA.example": "xn--bcher-kva.example", "faß.example": "xn--fa-hia.example",
		"r3---sn-4g5e.example": "r3---sn-4g5e.example", "a。b": "a.b", "single": "single",
		strings.Repeat("a", 63) + ".x": strings.Repeat("a", 63) + ".x",
	} {
		if got, err := Host(in); err != nil || got != want {
			t.Errorf("Host(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", ".", "..", "a..b", ".a", "a..", "a b", "a/b", "a:1", "a@b", "a\x00", "a\n", "*", "*.x", "[::1]", "%2e", "a%2eb",
		"127.0.0.1", "2130706433", "0x7f.1", "127.1", "0177.0.0.1", "x.0x", "x.0XaF", "１２７.0.0.1", "a.1", "::1",
		strings.Repeat("a", 64) + ".x", strings.Repeat("a.", 127) + "aa", "xn--a.example", "xn--zzzzzz.test", "xn--", "\xff.test", strings.Repeat("ü", 2000),
		"אa.example", "a\u200db.test",
	} {
		if got, err := Host(in); err == nil {
			t.Errorf("Host(%q) = %q, must be refused", in, got)
		}
	}
}

func TestHostOrAddr(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1": "127.0.0.1", "::1": "::1", "::ffff:1.2.3.4": "1.2.3.4", "fe80::1%eth0": "fe80::1%eth0",
	} {
		if n, got, err := HostOrAddr(in); err != nil || n != "" || got.String() != want {
			t.Errorf("HostOrAddr(%q) = %q, %v, %v", in, n, got, err)
		}
	}
	for _, in := range []string{"2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "1.2.3.4.", "1.2.3.04", "256.1.1.1", "1.2.3", "[::1]", ":", "::1::"} {
		if n, a, err := HostOrAddr(in); err == nil {
			t.Errorf("HostOrAddr(%q) = %q, %v, must be refused", in, n, a)
		}
	}
}

func TestPoolsHoldWhatB51Says(t *testing.T) {
	for _, a := range []string{"100.127.255.253", "100.127.255.254", "100::ffff:ffff:ffff:fffd", "100::ffff:ffff:ffff:fffe"} {
		x := netip.MustParseAddr(a)
		if !InPools(x) || !Reserved4().Contains(x) && !Reserved6().Contains(x) {
			t.Errorf("%s must be reserved", a)
		}
	}
	if Resolver4().String() != "100.127.255.253" || Resolver6().String() != "100::ffff:ffff:ffff:fffd" || Cell6().String() != "100::ffff:ffff:ffff:fffe" {
		t.Error("resolver or cell address is wrong")
	}
	if !InPools(netip.MustParseAddr("::ffff:100.64.0.9")) || InPools(netip.MustParseAddr("100:0:0:1::")) || InPools(netip.MustParseAddr("100.128.0.0")) {
		t.Error("pool edges are wrong")
	}
}

func TestZones(t *testing.T) {
	if !UnderAlt("alt") || !UnderAlt(Model) || UnderAlt("xalt") || UnderAlt("alt.test") {
		t.Error("alt")
	}
	if !Loopback("localhost") || !Loopback("a.localhost") || Loopback("notlocalhost") {
		t.Error("localhost")
	}
	if n, ok := Below("a.b.s.test", "s.test"); !ok || n != 2 {
		t.Error("two labels below")
	}
	for _, h := range []string{"s.test", "evils.test", ".s.test", "test"} {
		if _, ok := Below(h, "s.test"); ok {
			t.Errorf("%s is not below s.test", h)
		}
	}
}

// Normalising is idempotent, and case and one dot make no difference.
func TestHostIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[a-zA-Z0-9_üßא-]{1,12}(\.[a-zA-Z0-9ü-]{1,8}){0,3}`).Draw(t, "s")
		a, err := Host(s)
		if err != nil {
			return
		}
		for _, again := range []string{a, a + ".", strings.ToUpper(a), s + "."} {
			if b, err := Host(again); err != nil || a != b {
				t.Fatalf("%q -> %q, but %q -> %q, %v", s, a, again, b, err)
			}
		}
	})
}

func FuzzHost(f *testing.F) {
	for _, s := range []string{"ok.test", "OK.", "bücher.example", "xn--bcher-kva", "127.1", "0x7f.1", "a。b", "*.x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Host(s)
		if err != nil {
			return
		}
		if b, err := Host(a); err != nil || a != b {
			t.Fatalf("%q -> %q -> %q, %v", s, a, b, err)
		}
		if _, err := netip.ParseAddr(a); err == nil || len(a) > MaxHost {
			t.Fatalf("%q became %q", s, a)
		}
	})
}
