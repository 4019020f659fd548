package config

import (
	"strings"
	"testing"

	"skep.dev/skep/internal/right"
)

func TestConfig(t *testing.T) {
	c, faults := Parse("/etc/skep/config.yaml", []byte(`
targets:
  demo: {script: demo.yaml}
  gpt: {openai: https://api.openai.com/v1, key: "file:/etc/skep/openai.key"}
  local: {openai: http://127.0.0.1:8080/v1}
roles:
  coder: [demo]
  gpt-4.1: [gpt, local]
`))
	if faults != nil {
		t.Fatal(faults.Render())
	}
	demo, _ := c.Target("demo")
	if demo.Kind != Script || demo.Script != "/etc/skep/demo.yaml" || demo.Line != 3 {
		t.Errorf("%+v", demo)
	}
	gpt, _ := c.Target("gpt")
	if gpt.Kind != OpenAI || gpt.URL.String() != "https://api.openai.com/v1" || gpt.Key != "/etc/skep/openai.key" {
		t.Errorf("%+v", gpt)
	}
	if r, ok := c.Role("gpt-4.1"); !ok || strings.Join(r.Targets, " ") != "gpt local" || r.Line != 8 {
		t.Errorf("%+v", r)
	}
	if _, ok := c.Role("writer"); ok {
		t.Error("a role that is not there")
	}
}

func TestConfigFaults(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"target: {}", `did you mean "targets"?`},
		{"servers: {}", "servers is not supported by this build"},
		{"targets: {a: {script: x, openai: http://x}}", "exactly one of script and openai"},
		{"targets: {a: {}}", "exactly one of script and openai"},
		{"targets: {a: {scrpt: x}}", `did you mean "script"?`},
		{"targets: {a: {script: x, key: env:K}}", "a script needs no key"},
		{"targets: {a: {openai: api.openai.com}}", "openai cannot be"},
		{"targets: {a: {openai: ftp://x/}}", "openai cannot be"},
		{"targets: {a: {openai: https://u:p@x/}}", "must not hold a password"},
		{"targets: {a: {openai: https://x/?a=b}}", "has no ?"},
		{"targets: {a: {openai: https://x, key: file:rel}}", "does not name a file"},
		{"targets: {a: {openai: https://x, key: env:OPENAI_API_KEY}}", "reads no key from an environment"},
		{"targets: {a b: {script: x}}", "cannot be a name in targets"},
		{"targets: [a]", "targets must be a mapping"},
		{"roles: {coder: [demo]}", `names the target "demo", which is not there`},
		{"roles: {coder: demo}", "role coder must be a list"},
		{"roles: {coder: []}", "is an empty list"},
		{"a: 1\na: 2", "unknown key"},
	} {
		if got, faults := Parse("/c.yaml", []byte(c.src)); got != nil || !strings.Contains(faults.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.src, faults, c.want)
		}
	}
}

// A key that somebody wrote into the config by mistake is never repeated, in
// no fault of its line.
func TestKeyIsNeverShown(t *testing.T) {
	_, faults := Parse("/c.yaml", []byte("targets: {a: {openai: nonsense, key: sk-canary-1, kay: 1}}\n"))
	if len(faults) != 3 || strings.Contains(faults.Render(), "canary") {
		t.Errorf("%s", faults.Render())
	}
}

func TestCeiling(t *testing.T) {
	c, faults := ParseCeiling("/etc/skep/ceiling.yaml", []byte(`
allow: [{name: "*.example.org"}]
deny:
  - {name: bad.example.org}
  - {name: mail.example.org, ports: [1-100]}
open: [{cidr: 127.0.0.0/8, ports: [8080]}, {cidr: 10.0.0.0/8}]
mixed: refuse
`))
	if faults != nil {
		t.Fatal(faults.Render())
	}
	if !c.Limited || !c.RefuseMixed || len(c.Open) != 2 || c.Open[0].Ports.String() != "8080" {
		t.Errorf("%+v", c)
	}
	flow := func(name string, port uint16) right.Flow {
		return right.Flow{Name: name, Port: port, Transport: right.TCP}
	}
	for _, f := range []right.Flow{flow("bad.example.org", 25), flow("bad.example.org", 9), flow("mail.example.org", 25)} {
		if _, denied := c.DenyRights().Allows(f); !denied {
			t.Errorf("%+v is not denied", f)
		}
	}
	if _, allowed := c.AllowRights().Allows(flow("a.example.org", 25)); allowed {
		t.Error("an allow without ports includes mail (B82)")
	}
	if _, allowed := c.AllowRights().Allows(flow("a.example.org", 5432)); !allowed {
		t.Error("an allow without ports is not every port")
	}
}

func TestProxy(t *testing.T) {
	c, faults := ParseCeiling("/etc/skep/ceiling.yaml", []byte(`
proxy: {url: "https://Proxy.Example.:3128", ca: "file:/etc/ca.pem", credential: "file:/etc/cred", direct: [inside.example, "*.corp.example"], send: name, udp: direct}
`))
	if faults != nil {
		t.Fatal(faults.Render())
	}
	p := c.Proxy
	if p.Host != "proxy.example" || p.Port != 3128 || !p.TLS || p.CA != "/etc/ca.pem" || p.Credential != "/etc/cred" || strings.Join(p.Direct, " ") != "inside.example .corp.example" || !p.ByName || !p.UDP {
		t.Errorf("%+v", p)
	}
	for src, want := range map[string]string{
		`{}`: "has no url", `{url: "ftp://a.example:1"}`: "a scheme", `{url: "http://u:canary@a.example"}`: "must not hold a password", `{url: "http://a.example:0"}`: "from 1 to 65535",
		`{url: "http://a.example/x"}`: "a scheme", `{url: "http://a.example", ca: "file:/x"}`: "by https", `{url: "http://a.example", credential: "secret"}`: "names a file",
		`{url: "http://a.example", direct: ["x.alt"]}`: "is no name", `{url: "http://a.example", send: both}`: "send", `{url: "http://2130706433"}`: "a host name",
	} {
		_, faults := ParseCeiling("/c.yaml", []byte("proxy: "+src+"\n"))
		if faults == nil || !strings.Contains(faults.Render(), want) || strings.Contains(faults.Render(), "canary") {
			t.Errorf("%s: %v, want %s", src, faults, want)
		}
	}
}

func TestCeilingWithoutAllow(t *testing.T) {
	for src, limited := range map[string]bool{"": false, "mixed: drop": false, "allow: []": true} {
		c, faults := ParseCeiling("/c.yaml", []byte(src))
		if faults != nil || c.Limited != limited || len(c.Allow) > 0 {
			t.Errorf("%q: %+v, %v", src, c, faults)
		}
	}
	for _, src := range []string{"allow:", "deny: []", "open: [{cidr: x}]", "mixed: both", "floor: none",
		"deny: [{name: a.example, inner: off}]", "deny: [{name: a.example, http: true}]", "deny: [{name: a.example, resolve: [10.0.0.1]}]"} {
		if c, faults := ParseCeiling("/c.yaml", []byte(src)); faults == nil {
			t.Errorf("%q: %+v", src, c)
		}
	}
}
