package right

import (
	"net/netip"
	"testing"
)

// N27: what a pattern is said to match is what it matches.
func TestDestMatches(t *testing.T) {
	for _, c := range []struct {
		text, explain string
		yes, no       []string
	}{
		{"name=x.example ports=443 transports=tcp", "the name x.example only",
			[]string{"x.example"}, []string{"a.x.example", "xx.example", "example", ""}},
		{"suffix=*.x.example ports=443 transports=tcp", "every name below x.example, never x.example itself",
			[]string{"a.x.example", "b.a.x.example"}, []string{"x.example", "ax.example", ".x.example", "x.example.evil.test"}},
		{"suffix=*.x.example depth=1 ports=443 transports=tcp", "every name at most 1 label deep below x.example, never x.example itself",
			[]string{"a.x.example"}, []string{"b.a.x.example", "x.example"}},
		{"name=* ports=443 transports=tcp", "every name, never a literal address", []string{"a", "b.c"}, []string{""}},
		{"ip=10.0.0.1 ports=443 transports=tcp", "the literal address 10.0.0.1, never a name", nil, []string{"10.0.0.1"}},
	} {
		n, err := ParseNet(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Dest.Explain(); got != c.explain {
			t.Errorf("%s: %q", c.text, got)
		}
		for _, name := range c.yes {
			if !n.Dest.MatchesName(name) {
				t.Errorf("%s does not match %s", c.text, name)
			}
		}
		for _, name := range c.no {
			if n.Dest.MatchesName(name) {
				t.Errorf("%s matches %q", c.text, name)
			}
		}
	}
}

// B106: a range beyond one special range admits no special address.
func TestWideRangesAdmitNoSpecialAddress(t *testing.T) {
	for cidr, want := range map[string]map[string]bool{
		"0.0.0.0/0":    {"8.8.8.8": true, "10.0.0.1": false, "127.0.0.1": false, "169.254.169.254": false, "2600::1": false},
		"10.0.0.0/8":   {"10.0.0.1": true, "11.0.0.1": false},
		"10.0.0.0/7":   {"10.0.0.1": false, "11.0.0.1": true},
		"10.1.0.0/16":  {"10.1.2.3": true, "10.2.0.1": false},
		"::/0":         {"2600::1": true, "::1": false, "fd00::1": false, "2001:db8::1": false},
		"fd00::/8":     {"fd00::1": true, "fc00::1": false},
		"127.0.0.1/32": {"127.0.0.1": true, "127.0.0.2": false},
	} {
		d, err := ParseDestCIDR(cidr)
		if err != nil {
			t.Fatal(err)
		}
		for addr, want := range want {
			if got := d.MatchesAddr(netip.MustParseAddr(addr)); got != want {
				t.Errorf("%s and %s: %v", cidr, addr, got)
			}
		}
	}
}

// B80: the narrowest of the rules that match decides, and among equals the
// strictest demand.
func TestAllows(t *testing.T) {
	var ns Nets
	for _, text := range []string{
		"name=* ports=443 transports=tcp ask=true",
		"suffix=*.x.example ports=443,8443 transports=tcp",
		"name=a.x.example ports=443 transports=tcp inner=tls",
		"name=a.x.example ports=443,9000 transports=tcp ask=true",
		"cidr=10.0.0.0/8 ports=1-24,26-464,466-586,588-1000 transports=tcp", // without mail (B82)
		"ip=10.0.0.1 ports=25 transports=udp",
	} {
		n, err := ParseNet(text)
		if err != nil {
			t.Fatal(err)
		}
		ns = append(ns, n)
	}
	for _, c := range []struct {
		f       Flow
		allowed bool
		ask     bool
		inner   Inner
	}{
		{Flow{Name: "y.example", Port: 443, Transport: TCP}, true, true, InnerCheck},
		{Flow{Name: "b.x.example", Port: 443, Transport: TCP}, true, false, InnerCheck},
		{Flow{Name: "a.x.example", Port: 443, Transport: TCP}, true, true, InnerTLS},
		{Flow{Name: "a.x.example", Port: 8443, Transport: TCP}, true, false, InnerCheck}, // only the suffix has the port
		{Flow{Name: "a.x.example", Port: 443, Transport: UDP}, false, false, 0},
		{Flow{Addr: netip.MustParseAddr("10.0.0.1"), Port: 24, Transport: TCP}, true, false, InnerOff},
		{Flow{Addr: netip.MustParseAddr("10.0.0.1"), Port: 25, Transport: TCP}, false, false, 0},
		{Flow{Addr: netip.MustParseAddr("10.0.0.1"), Port: 25, Transport: UDP}, true, false, InnerOff},
		{Flow{Addr: netip.MustParseAddr("8.8.8.8"), Port: 443, Transport: TCP}, false, false, 0},
		{Flow{Port: 443, Transport: TCP}, false, false, 0},
		{Flow{}, false, false, 0},
	} {
		d, allowed := ns.Allows(c.f)
		if allowed != c.allowed || d.Ask != c.ask || d.Inner != c.inner {
			t.Errorf("%+v: %+v, %v", c.f, d, allowed)
		}
	}
}

// The zero values deny.
func TestZeroGrantsNothing(t *testing.T) {
	f := Flow{Name: "a.example", Port: 443, Transport: TCP}
	if _, ok := (Nets{{}}).Allows(f); ok {
		t.Error("the zero net rule allows a flow")
	}
	if a := (Paths)(nil).At("/usr"); a != 0 {
		t.Error("no path rules allow", a)
	}
	if (Model{}).Covers(Model{Roles: []string{"a"}}) || (Secret{}).Covers(Secret{Name: "a"}) || (Exec{}).Covers(Exec{"/bin/sh"}) ||
		(Spawn{}).Covers(Spawn{1, 1}) || Ledger(0).Covers(ReadOwn) {
		t.Error("a zero right covers something")
	}
}

func TestSpawnBelow(t *testing.T) {
	for _, c := range []struct {
		s    Spawn
		left int64
		want Spawn
	}{{Spawn{2, 4}, 3, Spawn{1, 3}}, {Spawn{2, 4}, 9, Spawn{1, 4}}, {Spawn{1, 4}, 4, Spawn{}}, {Spawn{2, 4}, 0, Spawn{}}, {Spawn{}, 5, Spawn{}}} {
		if got := c.s.Below(c.left); got != c.want {
			t.Errorf("%v with %d left: %v, want %v", c.s, c.left, got, c.want)
		}
	}
}
