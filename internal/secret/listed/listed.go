// Package listed reads the list of secrets of a profile or a bundle (boundary.md, B120,
// B121).
//
// Its laws:
//   - A source is a place. What is none may be a secret, and is repeated by no fault.
//   - Each host and port of a secret is one that a rule lets through, over TLS that is read.
package listed

import (
	"fmt"
	"slices"
	"strings"

	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/right/declared"
	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/strict"
)

// Most is how many secrets a cell may have, MostPorts how many ports one (B150).
const (
	Most      = 64
	MostPorts = 64
)

const example = `- {name: github, source: "file:/run/keys/gh", hosts: [api.github.com], as: [bearer]}`

// Keys are the keys of an entry, for the published schema too.
func Keys() []string {
	return []string{"name", "source", "hosts", "ports", "path", "as", "env", "set", "on_misuse"}
}

// Secret is one entry and where it stands.
type Secret struct {
	secret.Binding
	Line int

	at map[string]strict.Pos // of its keys
}

// Right is what the entry grants.
func (s Secret) Right() right.Secret {
	out := right.Secret{Name: s.Name, Hosts: s.Hosts, Path: s.Path}
	for _, p := range s.Ports {
		out.Ports = append(out.Ports, right.PortRange{First: p, Last: p})
	}
	for _, p := range s.As {
		out.Placements = append(out.Placements, p.String())
	}
	out, _ = right.NewSecret(out) // a binding is stricter
	return out
}

// Form is what differs between a profile and a bundle.
type Form struct {
	// Path makes the path of a file absolute, or says what is wrong with it.
	Path func(string) (full, message, fix string)
	// Variable refuses a name of a variable.
	Variable func(at strict.Pos, name string) bool
	// Connector says that an agent of another runtime has the secrets: it has no variables
	// of ours, a source is a file, and nobody here can end it.
	Connector bool
}

// Read reads the list. Entries with a fault are left out of the result.
func Read(r *strict.Report, n *strict.Node, form Form) []Secret {
	var out []Secret
	items := r.Items(n, "secrets", example)
	if len(items) > Most {
		r.Fault(n, fmt.Sprintf("secrets has %d entries", len(items)), fmt.Sprintf("at most %d are read", Most))
		return nil
	}
	for _, item := range items {
		s, ok := one(r, item, form)
		if !ok {
			continue
		}
		for _, o := range out {
			switch {
			case o.Name == s.Name:
				r.Add(s.at["name"], s.Name, fmt.Sprintf("secret %q is bound twice", s.Name), fmt.Sprintf("line %d has it; choose another name", o.Line))
				ok = false
			case o.Env == s.Env && s.Env != "":
				r.Add(s.at["env"], s.Env, fmt.Sprintf("two secrets have the variable %s", s.Env), fmt.Sprintf("line %d has it; choose another", o.Line))
				ok = false
			}
		}
		if ok {
			out = append(out, s)
		}
	}
	return out
}

func one(r *strict.Report, item *strict.Node, form Form) (Secret, bool) {
	before := r.Len()
	for _, f := range item.Fields {
		if !slices.Contains(Keys(), f.Key) { // who does not know source may have written the value
			r.Hide(f.At)
			r.Hide(f.Value.Pos)
		}
	}
	f, ok := r.Fields(item, "an entry of secrets", example, Keys())
	if !ok {
		return Secret{}, false
	}
	s := Secret{Line: item.Line, at: map[string]strict.Pos{"": item.Pos}}
	for key, v := range f {
		s.at[key] = v.Pos
	}
	for _, key := range []string{"name", "source", "hosts", "as"} {
		if _, ok := f[key]; !ok {
			r.Add(item.Pos, "", "an entry of secrets has no "+key, "for example "+example)
		}
	}
	if v, ok := f["name"]; ok {
		s.Name, _ = r.Str(v, "name", "github")
	}
	if v, ok := f["source"]; ok {
		s.Source = source(r, v, form)
	}
	if v, ok := f["hosts"]; ok {
		for _, h := range r.Strs(v, "hosts", "[api.github.com]") {
			host(r, h)
			s.Hosts = append(s.Hosts, h.Text)
		}
	}
	if v, ok := f["ports"]; ok {
		s.Ports = ports(r, v)
	}
	if v, ok := f["path"]; ok {
		s.Path, _ = r.Str(v, "path", "/me/repo.git")
	}
	if v, ok := f["as"]; ok {
		for _, a := range r.Strs(v, "as", "[bearer, basic]") {
			place, err := secret.ParsePlace(a.Text)
			if err != nil {
				r.Fault(a, err.Error(), "for example as: [bearer, basic]")
			}
			s.As = append(s.As, place)
		}
	}
	if v, ok := f["env"]; ok {
		s.Env, _ = r.Str(v, "env", "GH_TOKEN")
		switch {
		case form.Connector:
			r.Fault(v, "the connector sets no variable in the agent", "remove env; what holds the placeholder is told when the agent is attached")
		case s.Env != "":
			form.Variable(v.Pos, s.Env)
		}
	}
	if v, ok := f["set"]; ok {
		s.Set, _ = r.Flag(v, "set")
	}
	if v, ok := f["on_misuse"]; ok {
		word, _ := r.OneOf(v, "on_misuse", "refuse", "end")
		s.End = word == "end"
		if s.End && form.Connector {
			r.Fault(v, "the connector refuses what is misused, and does not end its agent", "remove on_misuse, and detach the agent when its record has a misuse")
		}
	}
	if r.Len() > before {
		return Secret{}, false
	}
	checked, err := secret.NewBinding(s.Binding)
	if err != nil {
		r.Add(item.Pos, "", err.Error(), "for example "+example)
		return Secret{}, false
	}
	s.Binding = checked
	return s, true
}

// source takes a place. Whatever else it is may be a real secret, and faults are printed.
func source(r *strict.Report, n *strict.Node, form Form) secret.Source {
	fix := `write "file:/run/keys/github"`
	if !form.Connector {
		fix += ` or "env:GH_TOKEN"`
	}
	if n.Kind != strict.String {
		r.Secret(n.Pos, "source must be text that names a place", fix)
		return secret.Source{}
	}
	s, err := secret.ParseSource(n.Text)
	switch {
	case err != nil:
		r.Secret(n.Pos, err.Error(), fix)
		return secret.Source{}
	case s.Env != "" && form.Connector:
		r.Secret(n.Pos, "a bundle names files alone", fix)
	case s.File != "":
		full, message, fix := form.Path(s.File)
		if message != "" {
			r.Secret(n.Pos, "source: "+message, fix)
		}
		s.File = full
	}
	return s
}

func host(r *strict.Report, n *strict.Node) {
	d, err := right.ParseDestName(n.Text)
	switch {
	case err != nil:
		r.Fault(n, "hosts of a secret are exact names: "+err.Error(), "for example hosts: [api.github.com]")
	case d.Kind != right.Name:
		r.Fault(n, fmt.Sprintf("%q is not one name, and a secret goes to named hosts only", n.Text), "name each host, for example hosts: [api.github.com]")
	}
}

func ports(r *strict.Report, n *strict.Node) (out []uint16) {
	for _, span := range declared.Ports(r, n, false) {
		for p := uint32(span.First); p <= uint32(span.Last); p++ {
			if out = append(out, uint16(p)); len(out) > MostPorts {
				r.Fault(n, fmt.Sprintf("a secret has more than %d ports", MostPorts), "name those that it needs; 443 if there are none")
				return nil
			}
		}
	}
	return out
}

// Bound tells whether one of the secrets is for a name and port.
func Bound(all []Secret) func(host string, port uint16) bool {
	return func(host string, port uint16) bool {
		return slices.ContainsFunc(all, func(s Secret) bool { return slices.Contains(s.Hosts, host) && slices.Contains(s.Ports, port) })
	}
}

// Covered finds each destination of a secret that no rule lets through, or that a rule says
// is not to be read (B121).
func Covered(r *strict.Report, all []Secret, rules []declared.NetRule) {
	for _, s := range all {
		for _, host := range s.Hosts {
			for _, port := range s.Ports {
				if message, fix := uncovered(host, port, rules); message != "" {
					r.Add(s.at["hosts"], "", fmt.Sprintf("secret %q: %s", s.Name, message), fix)
				}
			}
		}
	}
}

func uncovered(host string, port uint16, rules []declared.NetRule) (message, fix string) {
	covered := false
	for _, rule := range rules {
		switch {
		case !rule.Dest.MatchesName(host) || !rule.Ports.Has(port) || rule.Transports&right.TCP == 0:
			continue
		case rule.HTTP || port == 80:
			return fmt.Sprintf("%s:%d is plain HTTP, by which everybody on the way could read it", host, port), "name a port of https"
		case rule.Inner == right.InnerOff:
			return fmt.Sprintf("the rule in line %d has inner: off for %s:%d, and a secret is filled into what is read", rule.Line, host, port), "remove inner"
		}
		covered = true
	}
	if covered {
		return "", ""
	}
	line := "- {name: " + host
	if port != 443 {
		line += fmt.Sprintf(", ports: [%d]", port)
	}
	return fmt.Sprintf("no rule of net lets %s:%d through", host, port), "add " + line + "} to net, or take the host out"
}

// Covers tells whether another entry of the name asks for no more: of the same source, the
// same variable, and not milder about a misuse.
func (s Secret) Covers(child Secret) bool {
	return s.Right().Covers(child.Right()) && s.Source == child.Source && s.Env == child.Env && s.Set == child.Set && (child.End || !s.End)
}

// Within is what is left of secrets where only these rules let something through.
func Within(all []Secret, rules []declared.NetRule) (out []Secret) {
	for _, s := range all {
		s.Hosts = slices.DeleteFunc(slices.Clone(s.Hosts), func(host string) bool {
			return slices.ContainsFunc(s.Ports, func(port uint16) bool {
				message, _ := uncovered(host, port, rules)
				return message != ""
			})
		})
		if len(s.Hosts) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// Text is the entry in canonical form, without its braces.
func (s Secret) Text(quote func(string) string) string {
	list := func(words []string) string {
		quoted := make([]string, len(words))
		for i, w := range words {
			quoted[i] = quote(w)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	var as, ports []string
	for _, p := range s.As {
		as = append(as, p.String())
	}
	for _, p := range s.Ports {
		ports = append(ports, fmt.Sprint(p))
	}
	parts := []string{
		"name: " + quote(s.Name), "source: " + quote(s.Source.String()), "hosts: " + list(s.Hosts),
		"ports: [" + strings.Join(ports, ", ") + "]", "path: " + quote(s.Path), "as: " + list(as),
	}
	if s.Env != "" {
		parts = append(parts, "env: "+quote(s.Env))
	}
	if s.Set {
		parts = append(parts, "set: true")
	}
	if s.End {
		parts = append(parts, "on_misuse: end")
	}
	return strings.Join(parts, ", ")
}
