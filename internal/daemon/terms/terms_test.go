package terms

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/right"
)

// L3: all that a profile grants is told, each right on its own, and nothing of what a
// variable is set to.
func TestRightsTellAll(t *testing.T) {
	const text = `
paths: [{path: /srv/a, rights: rw}]
net: [{name: a.example}]
secrets: [{name: gh, source: "file:/run/gh", hosts: [a.example], path: /r, as: [basic], on_misuse: end}]
unlisted: ask
policy_endpoint: off
resolved_addresses: [{cidr: 10.0.0.0/8, ports: [443]}]
model: {roles: [coder], tokens: 5}
budget: {wall: 1m}
env: {pass: [LANG], set: {TOKEN: hunter2}}
home: work
terminal: raw
agent_socket: {hosts: [git.test]}
`
	p, faults := profile.ParseAt("p.yaml", profile.Place{Dir: "/srv", Home: "/home/ada"}, []byte(text))
	if faults != nil {
		t.Fatal(faults)
	}
	plan := &pathplan.Plan{Rules: []profile.PathRule{{Path: right.Path{At: "/srv/a", Access: right.Read | right.Write}}}}
	want := []string{
		`agent_socket {hosts: ["git.test:22"]}`, "budget wall=60000", "env pass=LANG", "env set=TOKEN", "home work", "model roles=coder tokens=5",
		"net name=a.example ports=443 transports=tcp", "path rw /srv/a", "policy_endpoint off", "resolved_addresses cidr=10.0.0.0/8 ports=443",
		"secret secret=gh hosts=a.example ports=443 path=/r placements=basic on_misuse=end", "terminal raw", "unlisted ask",
	}
	got := Rights(p, plan)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	// A part of a profile that is added later is a right as well, or is named here.
	told := map[string]string{"File": "", "Dir": "", "Paths": "path", "Net": "net", "AskUnlisted": "unlisted", "NoDesk": "policy_endpoint", "Resolved": "resolved_addresses", "Model": "model",
		"Budget": "budget", "Home": "home", "Env": "env", "Raw": "terminal", "Agent": "agent_socket", "Secrets": "secret"}
	for f := range reflect.TypeFor[profile.Profile]().Fields() {
		word, known := told[f.Name]
		if f.IsExported() && (!known || !slices.ContainsFunc(got, func(r string) bool { return strings.HasPrefix(r, word) })) {
			t.Errorf("nothing tells of %s", f.Name)
		}
	}
}
