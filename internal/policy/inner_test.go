package policy

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/right"
)

func TestInspect(t *testing.T) {
	p := setting(t)
	p.Rules = append(p.Rules,
		Rule{ID: "off", Name: "off.test", Ports: ports(t, "443"), TCP: true, Inner: InnerOff},
		Rule{ID: "tls", Name: "tls.test", Ports: ports(t, "22,80"), TCP: true, Inner: InnerTLS},
		Rule{ID: "http", Name: "http.test", Ports: ports(t, "8080"), TCP: true, HTTP: true},
		Rule{ID: "lit", IP: netip.MustParseAddr("1.1.1.1"), Ports: ports(t, "853"), TCP: true, Inner: InnerTLS})
	for _, c := range []struct {
		dest string
		port uint16
		want Want
	}{
		{"ok.test", 443, WantFirst}, {"ok.test", 80, WantHTTP}, {"off.test", 443, WantNothing}, {"tls.test", 80, WantFirst},
		{"http.test", 8080, WantHTTP}, {"127.0.0.1", 7, WantNothing}, {"1.1.1.1", 853, WantFirst},
	} {
		if got := Inspect(out(c.dest, c.port), p); got != c.want {
			t.Errorf("%s:%d: %d, want %d", c.dest, c.port, got, c.want)
		}
	}
}

// BX-10, BX-12, BX-13 as decisions.
func TestDecideInner(t *testing.T) {
	p := setting(t)
	p.Rules = append(p.Rules, Rule{ID: "tls", Name: "tls.test", Ports: ports(t, "443"), TCP: true, Inner: InnerTLS})
	for _, c := range []struct {
		dest  string
		port  uint16
		inner flow.Inner
		want  flow.Reason
	}{
		{"ok.test", 443, flow.Inner{Protocol: flow.TLS, Name: "ok.test"}, flow.None},
		{"ok.test", 443, flow.Inner{Protocol: flow.TLS, Name: "evil.test"}, flow.TLSNameMismatch},
		{"ok.test", 443, flow.Inner{Protocol: flow.TLS}, flow.TLSNameMissing},
		{"ok.test", 443, flow.Inner{Protocol: flow.Opaque}, flow.None},
		{"tls.test", 443, flow.Inner{Protocol: flow.Opaque}, flow.TLSRequired},
		{"ok.test", 443, flow.Inner{}, flow.TLSRequired},
		{"ok.test", 80, flow.Inner{Protocol: flow.HTTP, Name: "ok.test"}, flow.None},
		{"ok.test", 80, flow.Inner{Protocol: flow.HTTP, Name: "evil.test"}, flow.HTTPHostMismatch},
		{"ok.test", 80, flow.Inner{Protocol: flow.Opaque}, flow.HTTPRequired},
		{"ok.test", 80, flow.Inner{Protocol: flow.TLS, Name: "ok.test"}, flow.HTTPRequired},
		{"no.test", 443, flow.Inner{Protocol: flow.TLS, Name: "no.test"}, flow.NotOnAllowlist},
	} {
		q := out(c.dest, c.port)
		q.Inner = c.inner
		if v := DecideInner(q, p); v.Reason != c.want || v.Allowed() != (c.want == flow.None) {
			t.Errorf("%s:%d %+v: %+v, want %s", c.dest, c.port, c.inner, v, c.want)
		}
	}
}

// B80, B110: of rules that are as narrow the strictest demand counts, whatever
// their ids and lines, and the ceiling's demand counts beside the profile's (B87).
func TestDemandsAddUp(t *testing.T) {
	rule := func(inner InnerCheck, http bool) Rule {
		return Rule{ID: "same", Line: 1, Name: "a.test", Ports: ports(t, "443"), TCP: true, Inner: inner, HTTP: http}
	}
	wide := Rule{ID: "same", Line: 1, Name: AnyName, Ports: ports(t, "443"), TCP: true, Inner: InnerOff}
	named, nobody, web := flow.Inner{Protocol: flow.TLS, Name: "a.test"}, flow.Inner{Protocol: flow.TLS}, flow.Inner{Protocol: flow.HTTP, Name: "a.test"}
	for what, c := range map[string]struct {
		p     Policy
		want  Want
		inner flow.Inner
		why   flow.Reason
	}{
		"off alone":            {Policy{Rules: []Rule{rule(InnerOff, false)}}, WantNothing, nobody, flow.None},
		"off under a wide one": {Policy{Rules: []Rule{wide, rule(InnerName, false)}}, WantFirst, nobody, flow.TLSNameMissing},
		"off beside check":     {Policy{Rules: []Rule{rule(InnerOff, false), rule(InnerDefault, false)}}, WantFirst, nobody, flow.TLSNameMissing},
		"check beside off":     {Policy{Rules: []Rule{rule(InnerDefault, false), rule(InnerOff, false)}}, WantFirst, nobody, flow.TLSNameMissing},
		"tls beside check":     {Policy{Rules: []Rule{rule(InnerTLS, false), rule(InnerName, false)}}, WantFirst, flow.Inner{Protocol: flow.Opaque}, flow.TLSRequired},
		"http beside check":    {Policy{Rules: []Rule{rule(InnerName, false), rule(InnerName, true)}}, WantHTTP, named, flow.HTTPRequired},
		"http beside tls, tls": {Policy{Rules: []Rule{rule(InnerTLS, false), rule(InnerName, true)}}, WantHTTP, named, flow.HTTPRequired},
		"http beside tls":      {Policy{Rules: []Rule{rule(InnerTLS, false), rule(InnerName, true)}}, WantHTTP, web, flow.TLSRequired},
		"the ceiling's check": {Policy{Rules: []Rule{rule(InnerOff, false)}, Ceiling: Ceiling{Limits: true, Allow: []Rule{rule(InnerDefault, false)}}},
			WantFirst, nobody, flow.TLSNameMissing},
		"the ceiling's off": {Policy{Rules: []Rule{rule(InnerOff, false)}, Ceiling: Ceiling{Limits: true, Allow: []Rule{wide}}}, WantNothing, nobody, flow.None},
	} {
		q := out("a.test", 443)
		if got := Inspect(q, c.p); got != c.want {
			t.Errorf("%s: inspect %d, want %d", what, got, c.want)
		}
		q.Inner = c.inner
		if v := DecideInner(q, c.p); v.Reason != c.why {
			t.Errorf("%s: %+v, want %s", what, v, c.why)
		}
	}
}

// B112 by address: HTTP is demanded, and Host is the address.
func TestHTTPByAddress(t *testing.T) {
	p := Policy{Rules: []Rule{{ID: "v4", CIDR: netip.MustParsePrefix("10.0.0.0/8"), Ports: ports(t, "8080"), TCP: true, HTTP: true},
		{ID: "v6", CIDR: netip.MustParsePrefix("fd00::/8"), Ports: ports(t, "8080"), TCP: true, HTTP: true}}}
	for _, c := range []struct {
		dest  string
		inner flow.Inner
		want  flow.Reason
	}{
		{"10.0.0.1", flow.Inner{Protocol: flow.HTTP, Name: "10.0.0.1"}, flow.None},
		{"10.0.0.1", flow.Inner{Protocol: flow.HTTP, Name: "10.0.0.2"}, flow.HTTPHostMismatch},
		{"10.0.0.1", flow.Inner{Protocol: flow.HTTP, Name: "evil.test"}, flow.HTTPHostMismatch},
		{"10.0.0.1", flow.Inner{Protocol: flow.HTTP}, flow.HTTPHostMismatch},
		{"10.0.0.1", flow.Inner{Protocol: flow.Opaque}, flow.HTTPRequired},
		{"10.0.0.1", flow.Inner{Protocol: flow.TLS}, flow.HTTPRequired},
		{"fd00::1", flow.Inner{Protocol: flow.HTTP, Name: "fd00::1"}, flow.None},
		{"fd00::1", flow.Inner{Protocol: flow.HTTP, Name: "10.0.0.1"}, flow.HTTPHostMismatch},
	} {
		q := out(c.dest, 8080)
		if Inspect(q, p) != WantHTTP {
			t.Errorf("%s is not inspected", c.dest)
		}
		q.Inner = c.inner
		if v := DecideInner(q, p); v.Reason != c.want {
			t.Errorf("%s %+v: %+v, want %s", c.dest, c.inner, v, c.want)
		}
	}
}

func TestResolveAndLiterals(t *testing.T) {
	p := setting(t)
	if got := Resolve(out("ok.test", 443), p); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if got := Resolve(out("a.s.test", 443), p); got != nil {
		t.Errorf("%v", got)
	}
	if got := Literals(p, flow.TCP); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// The kernel takes no overlap, and nothing that a rule grants may be missing.
func TestLiteralsCoverAndDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.Custom(func(t *rapid.T) Rule {
			first := rapid.Uint16Range(1, 20).Draw(t, "first")
			set, _ := right.NewPorts(right.PortRange{First: first, Last: rapid.Uint16Range(first, 22).Draw(t, "last")})
			cidr := rapid.SampledFrom([]string{"0.0.0.0/0", "100.0.0.0/8", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "1.1.1.1/32"}).Draw(t, "cidr")
			return Rule{CIDR: netip.MustParsePrefix(cidr), Ports: set, TCP: rapid.IntRange(0, 3).Draw(t, "tcp") > 0}
		})
		p := Policy{Rules: rapid.SliceOfN(rule, 0, 6).Draw(t, "rules")}
		spans := Literals(p, flow.TCP)
		for _, a := range []string{"10.0.0.1", "10.1.0.1", "10.1.2.3", "1.1.1.1", "100.64.0.1", "100.63.255.255", "100.128.0.0", "8.8.8.8"} {
			addr := netip.MustParseAddr(a)
			for port := uint16(1); port < 24; port++ {
				n := 0
				for _, s := range spans {
					if !addr.Less(s.First) && !s.Last.Less(addr) && s.Ports.Has(port) {
						n++
					}
				}
				want := 0
				for _, r := range p.Rules {
					if r.TCP && r.CIDR.Contains(addr) && r.Ports.Has(port) && a != "100.64.0.1" {
						want = 1
					}
				}
				if n != want {
					t.Fatalf("%s port %d is in %d spans, want %d: %v", a, port, n, want, spans)
				}
			}
		}
	})
}

// B114: a hello that may hide a name is judged by the one it shows, unless a rule refuses it.
func TestECH(t *testing.T) {
	p := setting(t)
	p.Rules = append(p.Rules, Rule{ID: "ech", Name: "plain.test", Ports: ports(t, "443"), TCP: true, NoECH: true},
		Rule{ID: "same", Name: "plain.test", Ports: ports(t, "443"), TCP: true}, Rule{ID: "any", Name: "shown.test", Ports: ports(t, "443"), TCP: true})
	for name, want := range map[string]flow.Reason{"plain.test": flow.ECHRefused, "shown.test": flow.None} {
		q := out(name, 443)
		q.Inner = flow.Inner{Protocol: flow.TLS, Name: name, ECH: true}
		if v := DecideInner(q, p); v.Reason != want || v.Allowed() != (want == flow.None) {
			t.Errorf("%s: %+v", name, v)
		}
		q.Inner.ECH = false
		if v := DecideInner(q, p); !v.Allowed() {
			t.Errorf("%s without: %+v", name, v)
		}
	}
	if (Rule{ID: "x", Name: "x.test", TCP: true, NoECH: true, Inner: InnerOff}).Check() == nil {
		t.Error("a rule that reads no hello judges it")
	}
}
