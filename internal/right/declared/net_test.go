package declared

import (
	"fmt"
	"strings"
	"testing"

	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/strict"
)

func read(t *testing.T, yaml string, d Defaults) ([]NetRule, strict.Faults) {
	t.Helper()
	n, r := strict.Read("r.yaml", []byte(yaml))
	if n == nil {
		t.Fatal(r.Faults())
	}
	return Nets(r, n, "net", d), r.Faults()
}

func ports(t *testing.T, s string) right.Ports {
	t.Helper()
	ps, err := right.ParsePorts(s)
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// B86: what a form leaves out is the form's own default; the rest is the same
// right whatever the form.
func TestDefaults(t *testing.T) {
	const yaml = "- {name: A.Example}\n- {name: '*.b.example', ports: [8000-8010, 80]}\n"
	for _, d := range []Defaults{{Ports: ports(t, "443"), Transports: right.TCP}, {Ports: ports(t, "1-24"), Transports: right.TCP | right.UDP}} {
		rules, faults := read(t, yaml, d)
		if faults != nil || len(rules) != 2 {
			t.Fatal(faults)
		}
		want := "name=a.example ports=" + d.Ports.String() + " transports=" + strings.Join(d.Transports.Words(), ",")
		if got := rules[0].Net.String(); got != want || rules[0].Line != 1 || rules[0].File != "r.yaml" {
			t.Errorf("%s in line %d, want %s", got, rules[0].Line, want)
		}
		if got := rules[1].Ports.String(); got != "80,8000-8010" || rules[1].Line != 2 {
			t.Errorf("%s in line %d", got, rules[1].Line)
		}
	}
}

// B82: a range grants no mail port; a range that denies takes it away.
func TestMailPortsInRanges(t *testing.T) {
	for deny, want := range map[bool]string{false: "20-24,26-30", true: "20-24,25,26-30"} {
		rules, faults := read(t, "- {name: a.example, ports: [20-30]}\n", Defaults{Deny: deny})
		_ = faults
		if len(rules) != 0 {
			t.Fatal("a rule without transports is accepted")
		}
		rules, faults = read(t, "- {name: a.example, ports: [20-30]}\n", Defaults{Transports: right.TCP, Deny: deny})
		if faults != nil || rules[0].Ports.String() != want {
			t.Errorf("deny %v: %v, %v", deny, rules, faults)
		}
	}
}

// An id says which rule decided, so no two rules of a list share one.
func TestIDsNameOneRule(t *testing.T) {
	d := Defaults{Ports: ports(t, "443"), Transports: right.TCP}
	for yaml, fine := range map[string]bool{
		"- {name: a.example, id: x}\n- {name: b.example, id: x}\n":                      false,
		"- {name: a.example, inner: off, id: net-2}\n- {name: b.example}\n":             false, // the second is net-2
		"- {name: a.example, id: net-work}\n- {name: b.example, id: net-}\n":            true,
		"- {name: a.example, id: x}\n- {name: b.example}\n- {name: c.example, id: y}\n": true,
	} {
		if _, faults := read(t, yaml, d); (faults == nil) != fine {
			t.Errorf("%q: %v", yaml, faults)
		}
	}
}

// B150: a list has at most 1,000 rules.
func TestTooManyRules(t *testing.T) {
	var b strings.Builder
	for i := range MaxRules + 1 {
		fmt.Fprintf(&b, "- {name: a%d.example}\n", i)
	}
	d := Defaults{Ports: ports(t, "443"), Transports: right.TCP}
	if rules, faults := read(t, b.String(), d); rules != nil || len(faults) != 1 {
		t.Errorf("%d rules, %v", len(rules), faults)
	}
	if rules, faults := read(t, strings.TrimSuffix(b.String(), "- {name: a1000.example}\n"), d); len(rules) != MaxRules || faults != nil {
		t.Errorf("%d rules, %v", len(rules), faults)
	}
}

func TestRangeCovers(t *testing.T) {
	r := func(yaml string) Range {
		n, report := strict.Read("r.yaml", []byte("- "+yaml+"\n"))
		out := Ranges(report, n, "resolved_addresses", ports(t, "443"), true)
		if report.Len() > 0 || len(out) != 1 {
			t.Fatal(report.Faults())
		}
		return out[0]
	}
	base := r("{cidr: 10.0.0.0/8, ports: [80, 443]}")
	for yaml, want := range map[string]bool{
		"{cidr: 10.0.0.0/8, ports: [80, 443]}": true, "{cidr: 10.1.0.0/16}": true, "{cidr: 10.1.0.0/16, ports: [22]}": false,
		"{cidr: 192.168.0.0/16}": false, "{cidr: 'fd00::/8'}": false,
	} {
		if got := base.Covers(r(yaml)); got != want {
			t.Errorf("%s: %v", yaml, got)
		}
	}
	if r("{cidr: 10.1.0.0/16}").Covers(base) {
		t.Error("a smaller range covers a larger one")
	}
}
