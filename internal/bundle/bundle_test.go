package bundle

import (
	"strings"
	"testing"
)

const whole = `version: v1
agent:
  id: reviewer-7.prod.acme.example
  external_id: "system:serviceaccount:prod:reviewer-7"
  credential: /run/credentials/reviewer-7.jwt
egress:
  allow:
    - api.example.org:443
    - "*.pkgs.example"
    - {name: db.example, ports: [5432], resolve: [10.0.1.50]}
    - {ip: 192.0.2.7, ports: [53], transports: [udp]}
`

func TestBundle(t *testing.T) {
	b, faults := Parse("b.yaml", []byte(whole))
	if faults != nil {
		t.Fatal(faults)
	}
	if b.Agent != "reviewer-7.prod.acme.example" || b.ExternalID != "system:serviceaccount:prod:reviewer-7" || b.Credential != "/run/credentials/reviewer-7.jwt" {
		t.Errorf("%+v", b)
	}
	for i, want := range []string{
		"name=api.example.org ports=443 transports=tcp", "suffix=*.pkgs.example ports=1-24,26-464,466-586,588-65535 transports=tcp",
		"name=db.example ports=5432 transports=tcp resolve=10.0.1.50", "ip=192.0.2.7 ports=53 transports=udp",
	} {
		if got := b.Allow[i]; got.Net.String() != want || got.Line != 8+i {
			t.Errorf("line %d: %s, want %s", got.Line, got.Net, want)
		}
	}
	if len(b.Warnings) != 1 || !strings.Contains(b.Warnings[0], "line 9: suffix=*.pkgs.example") {
		t.Errorf("%q", b.Warnings)
	}
}

// Whatever is not understood is an error with its line and what to write (B88, B211).
func TestFaults(t *testing.T) {
	allow := func(entry string) string {
		return "version: v1\nagent: {id: a.example}\negress:\n  allow:\n    - " + entry + "\n"
	}
	for src, want := range map[string]string{
		"":                                    "b.yaml: the bundle is empty",
		"version: v1\n":                       "names no agent",
		"agent: {id: a.example}":              "names no version",
		"version: v2\nagent: {id: a.example}": ":1:10: version cannot be",
		"version: v1\nagent: {id: a.example, issuer: x}":                                    `:2:24: unknown key "issuer"`,
		"version: v1\nagent: {id: A.example}":                                               ":2:13: the id of an agent",
		"version: v1\nagent: {id: mesh.skep.alt}":                                           ":2:13: the id of an agent",
		"version: v1\nagent: {id: a.example, credential: x.jwt}":                            "from the root",
		"version: v1\nversion: v1\nagent: {id: a.example}":                                  ":2:",
		"version: v1\nagent: {id: a.example}\n---\na: b\n":                                  "second document",
		"version: v1\nagent: &x {id: a.example}":                                            ":2:",
		"version: v1\nagent: {id: a.example}\nserves: {port: 1}":                            "serves has no name",
		"version: v1\nagent: {id: a.example}\nserves: {name: a, port: 65001}":               "boundary's own",
		"version: v1\nagent: {id: a.example}\nserves: {name: a, port: 1, credentials: all}": "credentials",
		"version: v1\nagent: {id: a.example}\negress: {allow: []}":                          "empty list",
		"version: v1\nagent: {id: a.example}\negress: {secrets: 1}":                         "secrets must be a list",
		"version: v1\nagent: {id: a.example}\negress: {allow: [\"x.test:443\"], secrets: [{name: a, source: \"env:A\", hosts: [x.test], as: [bearer]}]}":                   "a bundle names files alone",
		"version: v1\nagent: {id: a.example}\negress: {allow: [\"x.test:443\"], secrets: [{name: a, source: \"file:/a\", hosts: [x.test], as: [bearer], on_misuse: end}]}": "does not end its agent",
		"version: v1\nagent: {id: a.example}\negress: {allow: [\"x.test:443\"], secrets: [{name: a, source: \"file:/a\", hosts: [y.test], as: [bearer]}]}":                 "no rule of net lets y.test:443 through",
		allow(`""`):             ":5:7:",
		allow(`"a.*"`):          ":5:7:",
		allow(`"x*"`):           ":5:7:",
		allow("*"):              ":5:",
		allow("10.0.0.1:443"):   "write ip:",
		allow(`"::1"`):          "write ip:",
		allow("a.example:http"): "port",
		allow("a.example:0"):    "port",
		allow("a.example:"):     ":5:7:",
		"version: v1\nagent: {id: a.example}\negress: {allow: [b.example:443]}": `:3:18: b.example:443 without quotes is a mapping here; write "b.example:443"`,
		allow("{suffix: x}"):                               "suffix",
		allow("{name: a.example, hold: 5s}"):               ":5:31: hold is how long",
		allow("{ip: 100.64.0.1, ports: [1], nonsense: 1}"): `unknown key "nonsense"`,
	} {
		_, faults := Parse("b.yaml", []byte(src))
		if faults == nil || !strings.Contains(faults.Error(), want) {
			t.Errorf("%q: %v, want %q", src, faults, want)
		}
	}
}

func TestShort(t *testing.T) {
	b, faults := Short([]string{"api.example.org:443", "*.x.example"})
	if faults != nil || len(b.Allow) != 2 || b.Agent != "" || b.Allow[0].Net.String() != "name=api.example.org ports=443 transports=tcp" {
		t.Errorf("%+v, %v", b, faults)
	}
	for _, bad := range []string{"it's: [a]", "a\n- b", "", "10.0.0.1"} {
		if _, faults := Short([]string{bad}); faults == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("version: v1\nagent: {id: a.example}\negress: {allow: [a:1, '*.b']}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		b, faults := Parse("b.yaml", src)
		if (b == nil) == (faults == nil) {
			t.Fatalf("%+v, %v", b, faults)
		}
		if b != nil && b.Agent == "" {
			t.Fatal("a bundle without an agent")
		}
	})
}
