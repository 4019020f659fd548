package profile

import (
	"strings"
	"testing"

	"skep.dev/skep/internal/right"
)

func found(t *testing.T, src string) *Profile {
	t.Helper()
	p, faults := ParseAt(".skep.yaml", Place{Dir: testDir, Home: "/home/ada"}, []byte(src))
	if faults != nil {
		t.Fatal(faults.Render())
	}
	return p
}

func codingAgent(t *testing.T) *Profile {
	t.Helper()
	p, err := Shipped(Default, Place{Dir: testDir})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func set(t *testing.T, p *Profile) right.Paths {
	t.Helper()
	ps, err := right.NewPaths(p.PathRights()...)
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

func TestNarrowTakesAway(t *testing.T) {
	base := codingAgent(t)
	p, faults := Narrow(base, found(t, `
paths:
  - {path: ., rights: ro}
  - {path: ./build, rights: rw}
  - {path: ./secrets, rights: none}
model: {roles: [coder], tokens: 1000}
budget: {memory: 1GiB, wall: 20m}
env: {pass: [LANG]}
`))
	if faults != nil {
		t.Fatal(faults.Render())
	}
	for path, want := range map[string]string{
		testDir + "/main.go": "rx", testDir + "/build/x": "rwx", testDir + "/secrets/k": "-",
		testDir + "/.git/config": "rx", "/usr/bin/make": "rx", "/etc/shadow": "-",
	} {
		if got := set(t, p).At(path).String(); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if !set(t, base).Covers(set(t, p)) || !base.Budget.Covers(p.Budget.Budget) || !base.Model.Covers(p.Model) {
		t.Error("the result is wider than its base")
	}
	// 1GiB was required by the narrower profile, cpus are still optional.
	if p.Budget.Optional("memory") || !p.Budget.Optional("cpus") || p.Budget.String() != "cpus=4000 memory=1073741824 wall=1200000 pids=1024 disk=10737418240" {
		t.Errorf("budget %s, optional %v", p.Budget, p.Budget.IfAvailable)
	}
	if strings.Join(p.Env.Pass, " ") != "LANG" {
		t.Errorf("env %v", p.Env.Pass)
	}
}

// F20: a repository ships its own profile. Each way to be wider is refused with
// its line, all at once.
func TestNarrowRefusesWidening(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"paths: [{path: ./.git/hooks, rights: rw}]", ": writing " + testDir + "/.git/hooks is wider than coding-agent"},
		{"paths: [{path: ./.git/hooks/sub, rights: rw}]", "is wider"},
		{"paths: [{path: /usr, rights: rw}]", ": writing /usr is wider"},
		{"paths: [{path: /etc, rights: ro}]", ": reading and running programs of /etc is wider"},
		{"paths: [{path: ~/.ssh, rights: ro}]", "is wider"},
		{"paths: [{path: .., rights: ro}]", "is wider"},
		{"net: [{name: evil.example}]", "net rule name=evil.example is wider"},
		{"resolved_addresses: [{cidr: 10.0.0.0/8}]", "10.0.0.0/8 is wider"},
		{"model: {roles: [coder, boss]}", "the model right is wider"},
		{"budget: {memory: 8GiB}", "budget.memory is wider"},
		{"budget: {pids: {limit: 10, if_available: true}}", "budget.pids is wider"},
		{"home: work", "a kept home is wider"},
		{"env: {pass: [GH_TOKEN]}", "the variable GH_TOKEN is wider"},
		{"env: {set: {CI: \"1\"}}", "setting CI is wider"},
		{"terminal: raw", "a raw terminal is wider"},
	} {
		p, faults := Narrow(codingAgent(t), found(t, "version: v1\n"+c.src+"\n"))
		if p != nil || len(faults) != 1 || !strings.Contains(faults.Error(), c.want) || !strings.HasPrefix(faults.Error(), ".skep.yaml:2:") {
			t.Errorf("%s: %v, want %q in line 2", c.src, faults, c.want)
		}
	}
	_, faults := Narrow(codingAgent(t), found(t, "home: a\nterminal: raw\nnet: [{name: a.example}]\n"))
	if len(faults) != 3 {
		t.Errorf("not all at once: %v", faults)
	}
}

func TestNarrowByNothingIsTheBase(t *testing.T) {
	base := codingAgent(t)
	p, faults := Narrow(base, found(t, "version: v1\n"))
	if faults != nil || p.Digest() != base.Digest() {
		t.Errorf("%v, %v", p, faults)
	}
}

// Where base has net rules, found's must be among them; a narrower rule of
// base that found leaves out cannot be used to get round it.
func TestNarrowNet(t *testing.T) {
	base := found(t, "net: [{name: '*.x.example', ports: [443, 8443]}, {name: a.x.example, ports: [443], inner: tls}]")
	if _, faults := Narrow(base, found(t, "net: [{name: b.x.example}]")); faults != nil {
		t.Error(faults)
	}
	if _, faults := Narrow(base, found(t, "net: [{name: '*.x.example'}]")); faults == nil {
		t.Error("the rule that demands tls of a.x.example is gone")
	}
	if _, faults := Narrow(base, found(t, "net: [{name: b.x.example, ports: [22]}]")); faults == nil {
		t.Error("another port is accepted")
	}
}
