package boundary

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// openLoopback is an operator who lets cells reach the host's loopback (B105).
const openLoopback = "open: [{cidr: 127.0.0.0/8}]\n"

// TestBX1LoopbackByName: a listed name with 127.0.0.1 alone is refused, also where
// the floor is open; an exception, or a literal rule for that port, admits it.
func TestBX1LoopbackByName(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("lo.test", "127.0.0.1")
		lab.Echo("127.0.0.1:7080")
		const rule = "net:\n  - {name: lo.test, ports: [7080]}\n"
		h := open(t, lab, rule)
		for _, c := range []struct{ what, rules, ceiling, reason string }{
			{"no exception", rule, openLoopback, "resolved-address-denied"},
			{"an exception, the floor shut", rule + "resolved_addresses: [{cidr: 127.0.0.0/8, ports: [7080]}]\n", "deny: [{name: nothing.test}]\n", "resolved-address-denied"},
			{"an exception for another port", rule + "resolved_addresses: [{cidr: 127.0.0.0/8, ports: [7081]}]\n", openLoopback, "resolved-address-denied"},
			{"an exception", rule + "resolved_addresses: [{cidr: 127.0.0.0/8, ports: [7080]}]\n", openLoopback, ""},
			{"a literal rule", rule + "  - {ip: 127.0.0.1, ports: [7080]}\n", openLoopback, ""},
		} {
			t.Run(c.what, func(t *testing.T) {
				h := h.With(t)
				lab.Ceiling(c.ceiling)
				h.Rules(c.rules)
				before := len(lab.Connections())
				r := h.try(attempt{How: "tcp", At: "lo.test:7080"})[0]
				if c.reason != "" {
					if r.Err != "ECONNRESET" || len(lab.Connections()) != before {
						t.Errorf("%+v, %v", r, h.arrived(before))
					}
					h.refused(h.record(), "lo.test:7080", c.reason)
				} else if r.Got != "hello" || len(lab.Connections()) != before+1 {
					t.Errorf("%+v, %v", r, h.arrived(before))
				}
			})
		}
	})
}

// TestBX2BX3Exception: an exception for what names resolve to allows no literal; with
// the rule "*" it admits any name.
func TestBX2BX3Exception(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("any.test", "10.0.0.1")
		lab.Echo("10.0.0.1:7080")
		h := open(t, lab, "net: [{name: \"*\", ports: [7080]}]\nresolved_addresses: [{cidr: 10.0.0.0/8, ports: [7080]}]\n")
		r := h.try(attempt{How: "tcp", At: "any.test:7080"}, attempt{How: "tcp", At: "10.0.0.1:7080"}, attempt{How: "tcp", At: "x.alt:7080"})
		if r[0].Got != "hello" || r[1].Err != "ECONNREFUSED" || r[2].Err != "ECONNREFUSED" {
			t.Errorf("%+v", r)
		}
		record := h.record()
		h.refused(record, "10.0.0.1:7080", "ip-not-on-allowlist")
		h.refused(record, "x.alt:7080", "not-on-allowlist") // a name of Skep's own is never resolved outside (B70)
		if lab.Asked("x.alt", "A") != 0 || len(lab.Connections()) != 1 {
			t.Errorf("%d questions, %v", lab.Asked("x.alt", "A"), h.arrived(0))
		}
	})
}

// TestB56OverlayNetwork: a real destination in the range of the cell's own pools is
// reached by a name, and by no literal.
func TestB56OverlayNetwork(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		const overlay = "100.99.1.2"
		lab.Host("asked.test", overlay)
		lab.Host("plain.test", overlay)
		lab.Echo(overlay + ":7080")
		lab.Echo(overlay + ":7081")
		h := open(t, lab, "net: [{name: told.test, ports: [7080], resolve: ["+overlay+"]}, {name: \"*.test\", ports: [7080-7081]}]\n"+
			"resolved_addresses: [{cidr: 100.64.0.0/10, ports: [7080]}]\n")
		r := h.try(attempt{How: "tcp", At: "told.test:7080"}, attempt{How: "tcp", At: "asked.test:7080"}, attempt{How: "tcp", At: "plain.test:7081"}, attempt{How: "tcp", At: overlay + ":7080"})
		if r[0].Got != "hello" || r[1].Got != "hello" || r[2].Err != "ECONNRESET" || r[3].Err != "ECONNREFUSED" || len(lab.Connections()) != 2 {
			t.Errorf("%+v, %v", r, h.arrived(0))
		}
		if lab.Asked("told.test", "A") != 0 {
			t.Error("a name with resolve was asked for: it replaces the lookup (B84)")
		}
	})
}

// TestBX4BX5BX6Answers: of mixed answers only the kept ones are dialed; a name that
// changes its mind is asked once for a flow; dead addresses are passed over.
func TestBX4BX5BX6Answers(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Ceiling(openLoopback)
		for _, at := range []string{"127.0.0.1:7080", "169.254.169.254:7080", "10.0.0.1:7080", "93.184.216.34:7080"} {
			lab.Echo(at)
		}
		lab.Host("mixed.test", "169.254.169.254", "10.0.0.1", "127.0.0.1")
		lab.Script("rebind.test", testlab.Answer{Addrs: testlab.Addrs("93.184.216.34")}, testlab.Answer{Addrs: testlab.Addrs("10.0.0.1")})
		lab.Host("dead.test", "1.0.0.1", "1.0.0.2", "93.184.216.34")
		h := open(t, lab, "net: [{name: \"*.test\", ports: [7080]}]\nresolved_addresses: [{cidr: 127.0.0.0/8, ports: [7080]}]\n")
		for _, r := range h.try(attempt{How: "tcp", At: "mixed.test:7080"}, attempt{How: "tcp", At: "rebind.test:7080"}, attempt{How: "tcp", At: "dead.test:7080"}) {
			if r.Got != "hello" {
				t.Errorf("%+v", r)
			}
		}
		if got := h.arrived(0); !slices.Equal(got, []string{"127.0.0.1:7080", "93.184.216.34:7080", "93.184.216.34:7080"}) {
			t.Errorf("what arrived: %v", got)
		}
		for _, name := range []string{"mixed.test", "rebind.test", "dead.test"} {
			if n := lab.Asked(name, "A"); n != 1 {
				t.Errorf("%s was asked for %d times in one flow", name, n)
			}
		}
	})
}

// special is an address of each range of table S and of each way to hide one (B104, B105).
var special = strings.Fields(`0.1.2.3 10.1.2.3 100.64.1.2 127.1.2.3 169.254.1.2 172.16.1.2 192.0.0.8 192.0.2.1 192.168.1.2 198.18.1.2 198.51.100.1 203.0.113.1
	240.1.2.3 169.254.169.254 100.100.100.200 168.63.129.16 77.88.55.60
	::ffff:10.1.2.3 64:ff9b::a01:203 64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:a01:203::1 3fff::1 5f00::1 fc00::1 fe80::1 fec0::1 fd00:ec2::254
	2a02:6b8:a::a ::10.1.2.3`)

// TestN15BX7BX9SpecialAddresses: no special address is reached, by the widest rules: not as
// what a name resolves to, nor as a literal, nor in another spelling.
func TestN15BX7BX9SpecialAddresses(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Echo("93.184.216.34:7080")
		tries := []attempt{{How: "tcp", At: "93.184.216.34:7080"}}
		var names []string
		for i, a := range special {
			at := netip.AddrPortFrom(netip.MustParseAddr(a), 7080).String()
			if !strings.Contains(a, "ffff:") && a != "0.1.2.3" && !strings.HasPrefix(a, "fe80") { // which nobody can bind
				lab.Echo(at)
			}
			name := fmt.Sprintf("n%d.test", i)
			lab.Host(name, a)
			names = append(names, name+":7080")
			tries = append(tries, attempt{How: "tcp", At: at}, attempt{How: "tcp", At: name + ":7080"})
		}
		for _, spelling := range []string{"0x7f.1", "2130706433", "0177.0.0.1", "127.1"} {
			lab.Host(spelling, "93.184.216.34")
			tries = append(tries, attempt{How: "tcp", At: spelling + ":7080"})
		}
		h := open(t, lab, "net: [{name: \"*\", ports: [7080]}, {cidr: 0.0.0.0/0, ports: [7080]}, {cidr: \"::/0\", ports: [7080]}]\n")
		results := h.try(tries...)
		if results[0].Got != "hello" {
			t.Errorf("the widest rule does not work: %+v", results[0])
		}
		for _, r := range results[1:] {
			if r.reached() {
				t.Errorf("%+v", r)
			}
		}
		if got := h.arrived(0); len(got) != 1 {
			t.Errorf("what arrived: %v", got)
		}
		record := h.record()
		for _, name := range names {
			h.refused(record, name, "resolved-address-denied")
		}
		for _, a := range []string{"10.1.2.3:7080", "169.254.169.254:7080", "192.168.1.2:7080", "[fd00:ec2::254]:7080", "[2002:a01:203::1]:7080"} {
			h.refused(record, a, "ip-not-on-allowlist")
		}
	})
}
