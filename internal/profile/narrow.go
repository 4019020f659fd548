package profile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/right/declared"
	"skep.dev/skep/internal/secret/listed"
)

// Narrow applies a profile that Skep found by itself (`.skep.yaml`) to the one
// that holds without it (L3). What found leaves out stays as in base; its path
// rules are laid over base's, its other keys replace base's. Each thing in
// which found is wider is a fault with found's line: whoever wrote the file may
// only take away.
func Narrow(base, found *Profile) (*Profile, Faults) {
	n := narrowing{base: base, found: found}
	out := &Profile{
		File: base.File + " narrowed by " + found.File, Dir: base.Dir, lines: maps.Clone(base.lines), base: base,
		Paths: n.paths(), Net: n.net(), Resolved: n.resolved(), Model: n.model(), Budget: n.budget(),
		Home: base.Home, Env: n.env(), Raw: base.Raw && (found.Raw || found.Line("terminal") == 0),
	}
	out.Secrets = n.secrets(out.Net)
	out.AskUnlisted = base.AskUnlisted && (found.AskUnlisted || found.Line("unlisted") == 0)
	out.NoDesk = base.NoDesk || found.NoDesk
	if found.AskUnlisted && !base.AskUnlisted {
		n.wider(found.Line("unlisted"), "unlisted: ask", "a question about what no rule names")
	}
	if found.Home != "" && found.Home != base.Home {
		n.wider(found.Line("home"), "home: "+found.Home, "a kept home")
	}
	out.Agent = base.Agent
	if found.Line("agent_socket") != 0 {
		out.Agent = found.Agent
	}
	if !base.Agent.covers(out.Agent) {
		n.wider(found.Line("agent_socket"), "agent_socket: "+found.Agent.String(), "the use of your ssh-agent")
	}
	if found.Raw && !base.Raw {
		n.wider(found.Line("terminal"), "terminal: raw", "a raw terminal")
	}
	if n.faults != nil {
		return nil, n.faults.Sort()
	}
	return out, nil
}

type narrowing struct {
	base, found *Profile
	faults      Faults
}

func (n *narrowing) wider(line int, text, what string) {
	n.faults = append(n.faults, n.found.FaultAt(line, text, what+" is wider than "+n.base.File+" allows",
		"remove it; to grant it yourself, run with --profile "+n.found.File))
}

func (n *narrowing) paths() []PathRule {
	// A rule set that was parsed has no path twice, so NewPaths cannot fail.
	base, _ := right.NewPaths(n.base.PathRights()...)
	out := slices.Clone(n.base.Paths)
	for _, rule := range n.found.Paths {
		if more := rule.Access &^ base.At(rule.At); more != 0 {
			n.wider(rule.Line, rule.Path.String(), doing(more)+" "+rule.At)
			continue
		}
		out = slices.DeleteFunc(out, func(r PathRule) bool { return r.At == rule.At })
		out = append(out, rule)
	}
	return out
}

// doing says an access as what is done with a path.
func doing(a right.Access) string {
	var words []string
	for _, w := range []struct {
		access right.Access
		word   string
	}{{right.Read, "reading"}, {right.Write, "writing"}, {right.Execute, "running programs of"}} {
		if a&w.access != 0 {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, " and ")
}

func (n *narrowing) net() []declared.NetRule {
	if n.found.Line("net") == 0 {
		return n.base.Net
	}
	base := n.base.NetRights()
	good := true
	for _, rule := range n.found.Net {
		if !base.Covers(right.Nets{rule.Net}) {
			n.wider(rule.Line, rule.Net.String(), "net rule "+rule.Dest.String())
			good = false
		}
	}
	// Rule by rule is enough for each flow to be allowed, but dropping a
	// narrower rule of base may uncover a wider one: compare the sets too.
	if flow, wider := base.Wider(n.found.NetRights()); good && wider {
		n.wider(n.found.Line("net"), "net:", fmt.Sprintf("the net list (%s%v port %d)", flow.Name, addrText(flow), flow.Port))
	}
	return n.found.Net
}

func addrText(f right.Flow) string {
	if f.Addr.IsValid() {
		return f.Addr.String()
	}
	return ""
}

func (n *narrowing) resolved() []declared.Range {
	if n.found.Line("resolved_addresses") == 0 {
		return n.base.Resolved
	}
	for _, r := range n.found.Resolved {
		if !slices.ContainsFunc(n.base.Resolved, func(b declared.Range) bool { return b.Covers(r) }) {
			n.wider(r.Line, r.Prefix.String(), "resolved address "+r.Prefix.String())
		}
	}
	return n.found.Resolved
}

// secrets: one that found has is the base's of that name, for no more hosts, ports, paths
// and places. A destination that net does not let through any more has none.
func (n *narrowing) secrets(net []declared.NetRule) []listed.Secret {
	if n.found.Line("secrets") == 0 {
		return listed.Within(n.base.Secrets, net)
	}
	for _, s := range n.found.Secrets {
		at := slices.IndexFunc(n.base.Secrets, func(b listed.Secret) bool { return b.Name == s.Name })
		if at < 0 || !n.base.Secrets[at].Covers(s) {
			n.wider(s.Line, s.Name, "secret "+s.Name)
		}
	}
	return n.found.Secrets
}

func (n *narrowing) model() right.Model {
	if n.found.Line("model") == 0 {
		return n.base.Model
	}
	m := n.found.Model
	m.Tokens, m.Money = m.Tokens.Or(n.base.Model.Tokens), m.Money.Or(n.base.Model.Money)
	if !n.base.Model.Covers(m) {
		n.wider(n.found.Line("model"), "model: "+m.String(), "the model right")
	}
	return m
}

// budget: absent limits are the base's. A limit that base insists on may not
// become one that only holds where available.
func (n *narrowing) budget() Budget {
	out := Budget{Budget: n.found.Budget.Under(n.base.Budget.Budget)}
	for _, k := range amountKeys() {
		line := n.found.Line("budget." + k.key)
		from := n.found.Budget
		if line == 0 {
			from = n.base.Budget
		}
		if from.Optional(k.key) {
			out.IfAvailable = append(out.IfAvailable, k.key)
		}
		if line == 0 {
			continue
		}
		limit := k.limit(&n.base.Budget.Budget)
		_, bounded := limit.Value()
		weaker := from.Optional(k.key) && bounded && !n.base.Budget.Optional(k.key)
		if weaker || !limit.Covers(*k.limit(&out.Budget)) {
			n.wider(line, "budget."+k.key, "budget."+k.key)
		}
	}
	slices.Sort(out.IfAvailable)
	return out
}

func (n *narrowing) env() Env {
	if n.found.Line("env") == 0 {
		return n.base.Env
	}
	line := n.found.Line("env")
	for _, name := range n.found.Env.Pass {
		if !slices.Contains(n.base.Env.Pass, name) {
			n.wider(line, name, "the variable "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.found.Env.Set)) {
		if value, ok := n.base.Env.Set[name]; !ok || value != n.found.Env.Set[name] {
			n.wider(line, name, "setting "+name)
		}
	}
	return n.found.Env
}
