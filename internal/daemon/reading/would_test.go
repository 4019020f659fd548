package reading

import (
	"net/netip"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/policy"
)

const netProfile = `version: v1
net:
  - {name: a.example}
  - {name: "*.b.example", ports: [8000-8010]}
  - {ip: 192.0.2.1, ports: [80]}
  - {ip: 192.0.2.7, ports: [80]}
  - {name: here.example, ports: [8099], resolve: [127.0.0.1]}
  - {name: near.example, resolve: [10.0.0.7]}
model: {roles: [coder]}
`

// What would happen is told for what was never tried, with the rule, or with the line
// that would allow it.
func TestWould(t *testing.T) {
	ceiling := policy.Ceiling{}
	own := netip.MustParseAddr("192.0.2.7")
	g := &Reading{
		Ceiling: func() (policy.Ceiling, error) { return ceiling, nil },
		Own:     func() []netip.Addr { return []netip.Addr{own} },
	}
	r := cells.Record{ID: "cell", ProfileName: "p.yaml", Profile: netProfile}
	for ask, want := range map[string]struct{ decision, what, rule, why, allow string }{
		"a.example":           {"allow", "a.example:443 would be allowed", "a.example", "a rule allows it", ""},
		"A.example.:443":      {"allow", "a.example:443 would be allowed", "a.example", "a rule allows it", ""},
		"a.example:80":        {"deny", "a.example:80 would be refused", "a.example", "port-not-allowed", "- {name: a.example, ports: [80]}"},
		"x.b.example:8003":    {"allow", "would be allowed", "*.b.example", "judged when it is tried", ""},
		"other.example":       {"deny", "would be refused", "", "not-on-allowlist", "- {name: other.example}"},
		"192.0.2.1:80":        {"allow", "192.0.2.1:80 would be allowed", "192.0.2.1", "a rule allows it", ""},
		"192.0.2.7:80":        {"deny", "would be refused", "", "ip-not-on-allowlist", `open: [{cidr: "192.0.2.7/32", ports: [80]}] in the operator's ceiling.yaml`}, // the host's own (BX-8)
		"here.example:8099":   {"deny", "would be refused", "here.example", "resolved-address-denied", `open: [{cidr: "127.0.0.1/32", ports: [8099]}] in the operator's ceiling.yaml`},
		"near.example":        {"allow", "near.example:443 would be allowed", "near.example", "a rule allows it", ""},
		"mesh.skep.alt":       {"allow", "mesh.skep.alt:80 would be allowed", "model: of p.yaml", "a rule allows it", ""},
		"[2001:db8::1]:80":    {"deny", "[2001:db8::1]:80 would be refused", "", "ip-not-on-allowlist", `- {ip: "2001:db8::1", ports: [80]}`},
		"2001:db8::1":         {"deny", "[2001:db8::1]:443 would be refused", "", "ip-not-on-allowlist", `- {ip: "2001:db8::1"}`},
		"mesh.skep.alt:80":    {"allow", "would be allowed", "model: of p.yaml", "a rule allows it", ""},
		"somebody.skep.alt:1": {"deny", "would be refused", "", "not-on-allowlist", ""},
	} {
		a, err := g.would(r, ask)
		if err != nil {
			t.Errorf("%s: %v", ask, err)
			continue
		}
		m := a.Msg
		if m.Decision != want.decision || !strings.Contains(m.What, want.what) || !strings.Contains(m.Rule, want.rule) ||
			(want.rule == "") != (m.Rule == "") || !strings.Contains(m.Why, want.why) || !strings.HasPrefix(m.AllowWith, want.allow) || (want.allow == "") != (m.AllowWith == "") {
			t.Errorf("%s: %v", ask, m)
		}
	}
	ceiling.Deny = []policy.Rule{{ID: "no", Name: "a.example", TCP: true, Ports: nil}}
	ceiling.Limits = true
	if a, err := g.would(r, "a.example"); err != nil || a.Msg.Decision != "deny" || a.Msg.AllowWith != policy.NotPermitted {
		t.Errorf("the operator is not asked: %v, %v", a, err)
	}
	for _, ask := range []string{"a.example:0", "a.example:http", "a.example:70000", "a b", "1.2.3", ":80", "", "http://a.example/", "https://a.example:1"} {
		if a, err := g.would(r, ask); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%q is taken: %v, %v", ask, a, err)
		}
	}
}
