package policy

import (
	"net/netip"
	"testing"

	"skep.dev/skep/internal/flow"
)

// B105: an address inside NAT64 or 6to4 is judged as if it had been asked for: by
// port and transport, by the ceiling, and by what it denies and opens.
func TestB105TheAddressInside(t *testing.T) {
	prefix := netip.MustParsePrefix
	rule := func(id, dest, port string) Rule {
		return Rule{ID: id, CIDR: prefix(dest), Ports: ports(t, port), TCP: true}
	}
	nat64, six := rule("nat64", "64:ff9b::/96", "1-65535"), rule("6to4", "2002::/16", "1-65535")
	ten := rule("ten", "10.0.0.1/32", "443")
	tenUDP := ten
	tenUDP.TCP, tenUDP.UDP = false, true
	for what, c := range map[string]struct {
		dest string
		port uint16
		p    Policy
		want flow.Reason
	}{
		"both are allowed":              {"64:ff9b::a00:1", 443, Policy{Rules: []Rule{nat64, ten}}, flow.None},
		"and by 6to4":                   {"2002:a00:1::1", 443, Policy{Rules: []Rule{six, ten}}, flow.None},
		"only the outer":                {"64:ff9b::a00:1", 443, Policy{Rules: []Rule{nat64}}, flow.IPNotOnAllowlist},
		"only the inner":                {"64:ff9b::a00:1", 443, Policy{Rules: []Rule{ten}}, flow.IPNotOnAllowlist},
		"the inner's port":              {"64:ff9b::a00:1", 22, Policy{Rules: []Rule{nat64, ten}}, flow.PortNotAllowed},
		"the inner's transport":         {"64:ff9b::a00:1", 443, Policy{Rules: []Rule{nat64, tenUDP}}, flow.TransportNotAllowed},
		"a public one needs no rule":    {"64:ff9b::808:808", 443, Policy{Rules: []Rule{nat64}}, flow.None},
		"the ceiling's own rules":       {"64:ff9b::a00:1", 443, Policy{Rules: []Rule{nat64, ten}, Ceiling: Ceiling{Limits: true, Allow: []Rule{nat64}}}, flow.IPNotOnAllowlist},
		"the ceiling's port":            {"64:ff9b::a00:1", 443, Policy{Rules: []Rule{nat64, ten}, Ceiling: Ceiling{Limits: true, Allow: []Rule{nat64, rule("c", "10.0.0.0/8", "22")}}}, flow.PortNotAllowed},
		"both under the ceiling":        {"64:ff9b::a00:1", 443, Policy{Rules: []Rule{nat64, ten}, Ceiling: Ceiling{Limits: true, Allow: []Rule{nat64, ten}}}, flow.None},
		"denied inside":                 {"64:ff9b::808:808", 443, Policy{Rules: []Rule{nat64}, Ceiling: Ceiling{Deny: []Rule{{ID: "d", IP: netip.MustParseAddr("8.8.8.8")}}}}, flow.IPNotOnAllowlist},
		"denied inside, at this port":   {"2002:808:808::1", 443, Policy{Rules: []Rule{six}, Ceiling: Ceiling{Deny: []Rule{rule("d", "8.0.0.0/8", "443")}}}, flow.IPNotOnAllowlist},
		"denied inside at another port": {"2002:808:808::1", 80, Policy{Rules: []Rule{six}, Ceiling: Ceiling{Deny: []Rule{rule("d", "8.0.0.0/8", "443")}}}, flow.None},
		"our own address":               {"64:ff9b::808:808", 443, Policy{Rules: []Rule{nat64}, Ceiling: Ceiling{Own: []netip.Addr{netip.MustParseAddr("8.8.8.8")}}}, flow.IPNotOnAllowlist},
		"only the outer is opened": {"64:ff9b::a9fe:a9fe", 443, Policy{Rules: []Rule{nat64, rule("m", "169.254.169.254/32", "443")},
			Ceiling: Ceiling{Open: []Range{{prefix("64:ff9b::/96"), ports(t, "443")}}}}, flow.IPNotOnAllowlist},
		"the inner is opened": {"64:ff9b::a9fe:a9fe", 443, Policy{Rules: []Rule{nat64, rule("m", "169.254.169.254/32", "443")},
			Ceiling: Ceiling{Open: []Range{{prefix("169.254.169.254/32"), ports(t, "443")}}}}, flow.None},
	} {
		v := Decide(out(c.dest, c.port), c.p)
		if v.Reason != c.want || v.Allowed() != (c.want == flow.None) {
			t.Errorf("%s: %s port %d: %+v, want %s", what, c.dest, c.port, v, c.want)
		}
		// The same address as the result of a name that may resolve to it: every rule
		// for a literal counts there too, and so do denials and the floor.
		c.p.Rules = append(c.p.Rules, Rule{ID: "name", Name: "x.test", Ports: ports(t, "1-65535"), TCP: true})
		if c.p.Ceiling.Limits {
			c.p.Ceiling.Allow = append(c.p.Ceiling.Allow, Rule{ID: "name", Name: "x.test", Ports: ports(t, "1-65535"), TCP: true})
		}
		if got := Keep(out("x.test", c.port), c.p, netip.MustParseAddr(c.dest)); got != (c.want == flow.None) {
			t.Errorf("%s: as a result it is kept: %v", what, got)
		}
	}
}

// What would allow it is said of the address that was refused.
func TestB105AllowLineNamesTheAddressInside(t *testing.T) {
	p := Policy{Rules: []Rule{{ID: "nat64", CIDR: netip.MustParsePrefix("64:ff9b::/96"), Ports: ports(t, "443"), TCP: true}}}
	p.Rules = append(p.Rules, Rule{ID: "local", CIDR: netip.MustParsePrefix("64:ff9b:1::/48"), Ports: ports(t, "443"), TCP: true})
	floor := openLine(netip.MustParseAddr("169.254.169.254"), 443)
	for dest, want := range map[string]string{
		"64:ff9b::a00:1": `- {ip: "10.0.0.1"}`, "64:ff9b::a9fe:a9fe": floor,
		"64:ff9b:1::a00:1": `- {ip: "10.0.0.1"}`, "64:ff9b:1:a00:0:100::": `- {ip: "10.0.0.1"}`, "64:ff9b:1::a9:fea9:fe00:0": floor,
		"64:ff9b:1::1": "", "64:ff9b:1::808:808": "", // nothing, and a public one
	} {
		if v := Decide(out(dest, 443), p); v.AllowWith != want || v.Allowed() != (want == "") {
			t.Errorf("%s: %+v", dest, v)
		}
	}
	if v := Decide(out("64:ff9b:1::1", 443), Policy{}); v.AllowWith != `- {ip: "64:ff9b:1::1"}` {
		t.Errorf("%+v", v)
	}
}
