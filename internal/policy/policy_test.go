package policy

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/right"
)

func ports(t testing.TB, s string) right.Ports {
	t.Helper()
	p, err := right.ParsePorts(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func out(dest string, port uint16) flow.Request {
	q := flow.Request{Cell: "c", Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Port: port, Count: 1}
	if a, err := netip.ParseAddr(dest); err == nil {
		q.Addr = a.Unmap()
	} else {
		q.Name = dest
	}
	return q
}

func setting(t testing.TB) Policy {
	return Policy{Model: true, Rules: []Rule{
		{ID: "ip", Line: 3, IP: netip.MustParseAddr("127.0.0.1"), Ports: ports(t, "7"), TCP: true},
		{ID: "cidr", Line: 4, CIDR: netip.MustParsePrefix("::1/128"), Ports: ports(t, "7"), TCP: true},
		{ID: "ok", Line: 5, Name: "ok.test", Ports: ports(t, "7,80,443"), TCP: true, Resolve: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		{ID: "sub", Line: 6, Suffix: "s.test", Ports: ports(t, "443"), TCP: true},
		{ID: "one", Line: 7, Suffix: "d.test", Depth: 1, Ports: ports(t, "1-1023"), TCP: true},
		{ID: "mail", Line: 8, Name: "m.test", Ports: ports(t, "587"), TCP: true},
	}, Ceiling: Ceiling{NoFloor: true}}
}

// BC-15 to BC-26 and BC-45, as far as they are decisions.
func TestDecide(t *testing.T) {
	p := setting(t)
	for _, c := range []struct {
		dest string
		port uint16
		rule string
		why  flow.Reason
	}{
		{"127.0.0.1", 7, "ip", flow.None}, {"::1", 7, "cidr", flow.None}, {"::ffff:127.0.0.1", 7, "ip", flow.None},
		{"127.0.0.1", 8, "ip", flow.PortNotAllowed}, {"127.0.0.2", 7, "", flow.IPNotOnAllowlist},
		{"ok.test", 443, "ok", flow.None}, {"ok.test", 444, "ok", flow.PortNotAllowed}, {"no.test", 443, "", flow.NotOnAllowlist},
		{"a.s.test", 443, "sub", flow.None}, {"a.b.s.test", 443, "sub", flow.None}, {"s.test", 443, "", flow.NotOnAllowlist}, {"evils.test", 443, "", flow.NotOnAllowlist},
		{"a.d.test", 22, "one", flow.None}, {"a.b.d.test", 22, "", flow.NotOnAllowlist},
		{"a.d.test", 25, "one", flow.PortNotAllowed}, {"a.d.test", 587, "one", flow.PortNotAllowed}, {"m.test", 587, "mail", flow.None},
		{name.Model, 80, "model", flow.None}, {name.Model, 443, "", flow.PortNotAllowed}, {"x.alt", 443, "", flow.NotOnAllowlist},
		{name.Policy, 80, "policy", flow.None}, {name.Policy, 443, "", flow.PortNotAllowed}, {name.Nobody, 80, "", flow.NotOnAllowlist}, {"a.mcp.skep.alt", 80, "", flow.NotOnAllowlist},
		{"fe80::1%eth0", 7, "", flow.ScopedIP}, {"100.64.0.7", 443, "", flow.IPNotOnAllowlist}, {"100::7", 443, "", flow.IPNotOnAllowlist},
	} {
		v := Decide(out(c.dest, c.port), p)
		if v.Reason != c.why || v.Rule != c.rule || v.Allowed() != (c.why == flow.None) {
			t.Errorf("%s port %d: %+v, want rule %q reason %q", c.dest, c.port, v, c.rule, c.why)
		}
	}
	udp := out("ok.test", 443)
	udp.Transport = flow.UDP
	if v := Decide(udp, p); v.Reason != flow.TransportNotAllowed || v.AllowWith != "- {name: ok.test, transports: [udp]}" {
		t.Errorf("%+v", v)
	}
}

func TestZeroPolicyAllowsNothing(t *testing.T) {
	for _, q := range []flow.Request{{}, out("ok.test", 443), out("1.1.1.1", 443), out(name.Model, 80)} {
		if v := Decide(q, Policy{}); v.Allowed() {
			t.Errorf("%s is allowed", q.Destination())
		}
	}
	in := out("ok.test", 443)
	in.Direction = flow.In
	if Decide(in, setting(t)).Allowed() {
		t.Error("a delivery by name is allowed")
	}
}

// BC-26: "*" is every name but those under alt, and no literal.
func TestAnyName(t *testing.T) {
	p := Policy{Rules: []Rule{{ID: "any", Name: AnyName, Ports: ports(t, "443"), TCP: true}, {ID: "exact", Name: "x.test", Ports: ports(t, "443"), TCP: true}}}
	if v := Decide(out("y.test", 443), p); v.Rule != "any" {
		t.Errorf("%+v", v)
	}
	if v := Decide(out("x.test", 443), p); v.Rule != "exact" {
		t.Errorf("the narrowest must decide: %+v", v)
	}
	for dest, why := range map[string]flow.Reason{"1.1.1.1": flow.IPNotOnAllowlist, "x.alt": flow.NotOnAllowlist, name.Model: flow.NotOnAllowlist} {
		if v := Decide(out(dest, 443), p); v.Reason != why {
			t.Errorf("%s: %+v", dest, v)
		}
	}
}

// BX-9 and B106: a wide prefix admits no special address.
func TestBX9WidePrefix(t *testing.T) {
	all := ports(t, "1-65535")
	wide := Policy{Rules: []Rule{{ID: "4", CIDR: netip.MustParsePrefix("0.0.0.0/0"), Ports: all, TCP: true}, {ID: "6", CIDR: netip.MustParsePrefix("::/0"), Ports: all, TCP: true}}}
	if !Decide(out("1.1.1.1", 443), wide).Allowed() || !Decide(out("2606:4700::1", 443), wide).Allowed() {
		t.Error("a public address under 0.0.0.0/0 or ::/0")
	}
	for _, a := range []string{"10.0.0.1", "127.0.0.1", "169.254.169.254", "192.168.1.1", "64:ff9b::a00:1", "2002:a00:1::1", "fd00::1", "100.64.0.9"} {
		if v := Decide(out(a, 443), wide); v.Reason != flow.IPNotOnAllowlist {
			t.Errorf("%s: %+v", a, v)
		}
	}
	// A rule for the translation prefix is no rule for what hides in it.
	hidden := Policy{Rules: []Rule{{ID: "nat64", CIDR: netip.MustParsePrefix("64:ff9b::/96"), Ports: all, TCP: true}}}
	if Decide(out("64:ff9b::a00:1", 443), hidden).Allowed() {
		t.Error("10.0.0.1 inside NAT64 needs a rule of its own")
	}
	hidden.Rules = append(hidden.Rules, Rule{ID: "ten", IP: netip.MustParseAddr("10.0.0.1"), Ports: all, TCP: true})
	if !Decide(out("64:ff9b::a00:1", 443), hidden).Allowed() {
		t.Error("both are allowed now")
	}
}

// BX-7: special addresses in every spelling, as literal and as result.
func TestBX7SpecialAddressesAreRefused(t *testing.T) {
	p := Policy{Rules: []Rule{{ID: "any", Name: AnyName, Ports: ports(t, "1-65535"), TCP: true}, {ID: "all4", CIDR: netip.MustParsePrefix("0.0.0.0/0"), Ports: ports(t, "1-65535"), TCP: true},
		{ID: "all6", CIDR: netip.MustParsePrefix("::/0"), Ports: ports(t, "1-65535"), TCP: true}}}
	for _, a := range strings.Fields(`0.0.0.0 10.1.2.3 100.64.0.1 100.100.100.200 127.0.0.1 169.254.169.254 172.16.0.1 192.0.0.1 192.0.2.1 192.168.1.1 198.18.0.1 198.51.100.1
		203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 168.63.129.16 192.88.99.1 :: ::1 ::7f00:1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1
		2001::1 2001:db8::1 2002:a9fe:a9fe::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 100:0:0:1::1`) {
		addr := netip.MustParseAddr(a)
		if Keep(out("x.test", 80), p, addr) {
			t.Errorf("%s is kept as a result", a)
		}
		if v := Decide(out(a, 80), p); v.Reason != flow.IPNotOnAllowlist {
			t.Errorf("%s as a literal: %+v", a, v)
		}
	}
}

// BX-1 to BX-4, BX-8: which resolved addresses are kept.
func TestBX1Keep(t *testing.T) {
	lo, ten, meta, pub := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("1.1.1.1")
	q := out("x.test", 443)
	base := Policy{Rules: []Rule{{ID: "x", Name: "x.test", Ports: ports(t, "443"), TCP: true}}, Ceiling: Ceiling{NoFloor: true}}
	keeps := func(p Policy, addrs ...netip.Addr) (n int) {
		for _, a := range addrs {
			if Keep(q, p, a) {
				n++
			}
		}
		return n
	}
	if keeps(base, lo, ten, meta) != 0 || keeps(base, pub) != 1 {
		t.Error("only the public address may be kept")
	}
	except := base
	except.Resolved = []Range{{netip.MustParsePrefix("127.0.0.0/8"), ports(t, "443")}}
	if keeps(except, lo) != 1 || keeps(except, ten, meta) != 0 {
		t.Error("the exception is for 127/8")
	}
	if Decide(out("127.0.0.1", 443), except).Allowed() {
		t.Error("BX-2: an exception never allows a literal")
	}
	literal := base
	literal.Rules = append(literal.Rules, Rule{ID: "lo", IP: lo, Ports: ports(t, "443"), TCP: true})
	if keeps(literal, lo) != 1 {
		t.Error("a literal rule for that port admits it")
	}
	literal.Rules[1].Ports = ports(t, "80")
	if keeps(literal, lo) != 0 {
		t.Error("the literal rule is for another port")
	}
	floored := except
	floored.Ceiling = Ceiling{Own: []netip.Addr{pub}}
	if keeps(floored, lo, pub) != 0 {
		t.Error("BX-8: loopback and the host's own address are on the floor")
	}
	floored.Ceiling.Open = []Range{{netip.MustParsePrefix("127.0.0.1/32"), ports(t, "443")}}
	if keeps(floored, lo) != 1 {
		t.Error("the ceiling opened it")
	}
	denied := base
	denied.Ceiling.Deny = []Rule{{ID: "d", CIDR: netip.MustParsePrefix("1.0.0.0/8")}}
	if keeps(denied, pub) != 0 {
		t.Error("a deny entry beats every allow, for resolved addresses too")
	}
}

// BC-45, B87.
func TestCeiling(t *testing.T) {
	p := setting(t)
	p.Ceiling.Deny = []Rule{{ID: "no", Suffix: "s.test"}}
	if v := Decide(out("a.s.test", 443), p); v.Reason != flow.NotOnAllowlist || v.AllowWith != NotPermitted {
		t.Errorf("%+v", v)
	}
	p.Ceiling.Limits = true
	p.Ceiling.Allow = []Rule{{ID: "c", Name: "ok.test", Ports: ports(t, "443"), TCP: true}}
	for dest, want := range map[string]bool{"ok.test": true, "a.d.test": false, "127.0.0.1": false} {
		if got := Decide(out(dest, 443), p).Allowed(); got != want {
			t.Errorf("%s: %v, want %v", dest, got, want)
		}
	}
	// The floor binds literals (B105).
	p = setting(t)
	p.Ceiling.NoFloor = false
	if v := Decide(out("127.0.0.1", 7), p); v.Allowed() || !strings.HasPrefix(v.AllowWith, `open: [{cidr: "127.0.0.1/32", ports: [7]}]`) {
		t.Errorf("%+v", v)
	}
}

func TestAllowLine(t *testing.T) {
	for want, q := range map[string]flow.Request{
		"- {name: x.test}":                  out("x.test", 443),
		"- {name: x.test, ports: [22]}":     out("x.test", 22),
		`- {ip: "2001:db8::1", ports: [1]}`: out("2001:db8::1", 1),
	} {
		if v := Decide(q, Policy{}); v.AllowWith != want {
			t.Errorf("%q, want %q", v.AllowWith, want)
		}
	}
}

// Ports agrees with Decide on every port of a small universe.
func TestPortsAgreeWithDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.Custom(func(t *rapid.T) Rule {
			first := rapid.Uint16Range(1, 600).Draw(t, "first")
			set, _ := right.NewPorts(right.PortRange{First: first, Last: rapid.Uint16Range(first, 610).Draw(t, "last")})
			r := Rule{ID: rapid.StringMatching(`[a-c]`).Draw(t, "id"), Ports: set, TCP: rapid.Bool().Draw(t, "tcp")}
			switch rapid.IntRange(0, 2).Draw(t, "form") {
			case 0:
				r.Name = rapid.SampledFrom([]string{"a.test", "b.test", AnyName}).Draw(t, "name")
			case 1:
				r.Suffix = "test"
			default:
				r.CIDR = netip.MustParsePrefix("0.0.0.0/0")
			}
			return r
		})
		p := Policy{Rules: rapid.SliceOfN(rule, 0, 4).Draw(t, "rules")}
		p.Ceiling.Deny = rapid.SliceOfN(rule, 0, 1).Draw(t, "deny")
		p.Ceiling.Limits = rapid.Bool().Draw(t, "limits")
		p.Ceiling.Allow = rapid.SliceOfN(rule, 0, 2).Draw(t, "allow")
		got := Ports("a.test", flow.TCP, p)
		for port := uint16(1); port < 620; port++ {
			if want := Decide(out("a.test", port), p).Allowed(); got.Has(port) != want {
				t.Fatalf("port %d: gate %v, decision %v under %+v", port, !want, want, p)
			}
		}
	})
}

func TestCheckRefusesWhatCannotBeARule(t *testing.T) {
	for what, r := range map[string]Rule{
		"nothing": {}, "two": {Name: "a.test", IP: netip.MustParseAddr("1.1.1.1")}, "upper case": {Name: "A.test"},
		"star inside": {Name: "a.*"}, "address as name": {Name: "1.2.3.4"}, "pool": {IP: netip.MustParseAddr("100.64.0.1")},
		"pool range": {CIDR: netip.MustParsePrefix("100.64.0.0/12")}, "depth without suffix": {Name: "a.test", Depth: 1},
		"resolve on any": {Name: AnyName, Resolve: []netip.Addr{{}}}, "suffix star": {Suffix: "*"}, "mapped": {IP: netip.MustParseAddr("::ffff:1.1.1.1")},
		"check of a literal": {IP: netip.MustParseAddr("1.1.1.1"), Inner: InnerName}, "http unchecked": {Name: "a.test", HTTP: true, Inner: InnerOff},
	} {
		if (Policy{Rules: []Rule{r}}).Check() == nil {
			t.Errorf("%s: must be refused", what)
		}
	}
	if err := setting(t).Check(); err != nil {
		t.Error(err)
	}
	twice := Rule{ID: "x", Name: "a.test"}
	if (Policy{Rules: []Rule{twice, twice}}).Check() == nil || (Policy{Rules: []Rule{twice}, Ceiling: Ceiling{Allow: []Rule{twice}}}).Check() != nil {
		t.Error("an id names one rule of its list")
	}
	if (Policy{Resolved: []Range{{netip.MustParsePrefix("0.0.0.0/0"), nil}}}).Check() == nil {
		t.Error("resolved_addresses must lie inside one range of table S")
	}
}
