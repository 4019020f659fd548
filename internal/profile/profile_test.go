package profile

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skep.dev/skep/internal/right"
)

const testDir = "/home/ada/project"

func mustParse(t *testing.T, src string) *Profile {
	t.Helper()
	p, faults := ParseAt("build.yaml", Place{Dir: testDir, Home: "/home/ada"}, []byte(src))
	if faults != nil {
		t.Fatalf("faults:\n%s", faults.Render())
	}
	return p
}

func TestCodingAgent(t *testing.T) {
	p, err := Shipped(Default, Place{Dir: testDir})
	if err != nil {
		t.Fatal(err)
	}
	set, err := right.NewPaths(p.PathRights()...)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		testDir + "/main.go":              "rwx",
		testDir + "/.git/index":           "rwx",
		testDir + "/.git/hooks/pre-merge": "rx",
		testDir + "/.git/config":          "rx",
		"/usr/bin/make":                   "rx",
		"/etc/ssl/certs":                  "rx",
		"/etc/shadow":                     "-",
		"/home/ada/.ssh":                  "-",
	} {
		if got := set.At(path).String(); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if len(p.Net) != 0 || p.Model.String() != "roles=coder" || p.Home != "" || p.Raw {
		t.Errorf("net %v, model %q, home %q, raw %v", p.Net, p.Model, p.Home, p.Raw)
	}
	if got, want := p.Budget.String(), "cpus=4000 memory=4294967296 pids=1024 disk=10737418240"; got != want {
		t.Errorf("budget %q, want %q", got, want)
	}
	if !p.Budget.Optional("cpus") || !p.Budget.Optional("memory") || p.Budget.Optional("pids") {
		t.Errorf("if_available: %v", p.Budget.IfAvailable)
	}
}

const whole = `version: v1
paths:
  - {path: ., rights: rw}
  - {path: /usr, rights: ro}
  - {path: ~/.cache/go, rights: ro}
  - {path: ./secret, rights: none}
net:
  - {name: proxy.example.org}
  - {name: "*.Example.org", ports: [443, 8000-8010], transports: [tcp], id: ex}
  - {suffix: "*.deep.example", depth: 2}
  - {name: db.corp.example, ports: [5432], resolve: [10.0.1.50]}
  - {ip: 192.0.2.1, ports: [80], http: true}
  - {name: api.example.org, ports: [80], methods: [POST, GET], paths: ["/repos/*", "/a%2fb"], encoded_slash: true, correlate: true}
  - {name: upload.example.org, ask: true, hold: 1m30s, ech: refuse}
  - {cidr: 10.0.0.0/8, ports: [25]}
  - {name: "*", ports: [22], inner: off}
unlisted: ask
policy_endpoint: off
resolved_addresses: [{cidr: 10.1.0.0/16, ports: [443]}]
model: {roles: [coder, "gpt-4.1"], tokens: 200_000, usd: 5.00}
budget: {cpus: 0.5, cpu_time: 1h30m, memory: {limit: 4GiB, if_available: true}, wall: 20m, pids: 256, disk: 10GiB, net: 1GiB}
ledger: {model: digest}
home: work
env: {pass: [LANG, TERM], set: {CI: "1", MOTD: "caf\u00e9 \"x\""}}
terminal: raw
`

func TestEffectiveKeepsDigest(t *testing.T) {
	p := mustParse(t, whole)
	effective := p.Effective()
	again, faults := ParseAt("effective", Place{}, []byte(effective))
	if faults != nil {
		t.Fatalf("%s\n%s", effective, faults.Render())
	}
	if again.Effective() != effective || again.Digest() != p.Digest() {
		t.Errorf("effective form changes:\n%s\n%s", effective, again.Effective())
	}
	t.Log("\n" + effective)
}

// Comments, order and spelling have no effect, so they keep the digest; each
// value that has an effect changes it.
func TestDigestBindsEffect(t *testing.T) {
	a := mustParse(t, "env: {pass: [TERM, LANG]}\nmodel: {roles: [b, a], usd: 5.00}\n")
	b := mustParse(t, "# same\nmodel: {usd: 5, roles: [a, b]}\nversion: v1\nenv:\n  pass: [LANG, TERM]\n")
	if a.Digest() != b.Digest() {
		t.Errorf("digests differ:\n%s\n%s", a.Effective(), b.Effective())
	}
	seen := map[string]string{}
	for _, src := range []string{
		"version: v1", "terminal: raw", "home: a", "home: b", "paths: [{path: ., rights: ro}]",
		"paths: [{path: ., rights: rw}]", "paths: [{path: ., rights: none}]", "net: [{name: a.example}]",
		"net: [{name: '*.a.example'}]", "net: [{name: a.example, ports: [80]}]",
		"net: [{name: a.example, inner: off}]", "net: [{name: a.example, http: true}]",
		"net: [{name: a.example, resolve: [10.0.0.1]}]", "budget: {memory: 1GiB}",
		"budget: {memory: {limit: 1GiB, if_available: true}}", "model: {roles: [a]}",
		"model: {roles: [a], tokens: 1}", "env: {pass: [A]}", "env: {set: {A: ''}}", "env: {set: {A: b}}",
		"resolved_addresses: [{cidr: 10.0.0.0/8}]",
	} {
		d := mustParse(t, src).Digest()
		if other, twice := seen[d]; twice {
			t.Errorf("%q and %q have one digest", src, other)
		}
		seen[d] = src
	}
}

func TestEmptyGrantsNothing(t *testing.T) {
	for _, src := range []string{"", "# nothing\n", "version: v1\n", "---\n"} {
		p := mustParse(t, src)
		if len(p.Paths)+len(p.Net)+len(p.Model.Roles)+len(p.Env.Pass) > 0 {
			t.Errorf("%q grants %+v", src, p)
		}
	}
}

// What is shown as JSON reads back to the same rights, and says what each net
// rule matches (N27).
func TestView(t *testing.T) {
	p := mustParse(t, whole)
	data, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var v View
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.View(), v, cmp.Comparer(func(a, b right.Limit) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if got, want := v.Net[1].Matches, "every name below example.org, never example.org itself"; got != want || v.Net[1].Line != 9 || v.Net[1].ID != "ex" {
		t.Errorf("%+v", v.Net[1])
	}
}

func TestNamesOfVariables(t *testing.T) {
	for s, good := range map[string]bool{
		"A": true, "_": true, "a_1": true, strings.Repeat("x", 128): true,
		"": false, "1a": false, "A-B": false, "A B": false, "A\n": false, "Ä": false, strings.Repeat("x", 129): false,
	} {
		if isEnvName(s) != good {
			t.Errorf("%q: %v", s, !good)
		}
	}
}
