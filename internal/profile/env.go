package profile

import (
	"fmt"
	"slices"
	"strings"

	"skep.dev/skep/internal/strict"
)

// isEnvName tells whether s is the name of a variable, as a shell has it, of 128
// characters at most.
func isEnvName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return 0 < len(s) && len(s) <= 128
}

func (r parser) env(n *strict.Node) {
	f, ok := r.Fields(n, "env", `env: {pass: [LANG], set: {CI: "1"}}`, sectionKeys()["env"])
	if !ok {
		return
	}
	if v, ok := f["pass"]; ok {
		for _, item := range r.Strs(v, "env.pass", "[LANG, TERM]") {
			if r.envName(item.Pos, item.Text) {
				r.p.Env.Pass = append(r.p.Env.Pass, item.Text)
			}
		}
		slices.Sort(r.p.Env.Pass)
	}
	if v, ok := f["set"]; ok {
		r.envSet(v)
	}
}

func (r parser) envSet(n *strict.Node) {
	if n.Kind != strict.Map {
		r.Fields(n, "env.set", `{CI: "1"}`, nil) // says what is wrong
		return
	}
	r.p.Env.Set = map[string]string{}
	for _, f := range n.Fields {
		value, ok := f.Value.Text, f.Value.Kind == strict.String
		if !ok {
			value, ok = r.Str(f.Value, "env.set."+f.Key, `"1"`)
		}
		switch {
		case !r.envName(f.At, f.Key) || !ok:
		case strings.ContainsRune(value, 0):
			r.Fault(f.Value, "a variable cannot hold a NUL byte", "remove it")
		case slices.Contains(r.p.Env.Pass, f.Key):
			r.Add(f.At, f.Key, f.Key+" is both passed and set", "keep one")
		default:
			r.p.Env.Set[f.Key] = value
		}
	}
}

// variable refuses a name for the variable that has a placeholder.
func (r parser) variable(at strict.Pos, s string) bool {
	if !r.envName(at, s) {
		return false
	}
	if _, set := r.p.Env.Set[s]; set || slices.Contains(r.p.Env.Pass, s) {
		r.Add(at, s, s+" is set or passed by env, and would have the placeholder of a secret", "keep one")
		return false
	}
	return true
}

// envName refuses what Skep sets itself: a profile that could set them would
// contradict the home, or fake the control socket (L8c, L23).
func (r parser) envName(at strict.Pos, s string) bool {
	switch {
	case !isEnvName(s):
		r.Add(at, s, fmt.Sprintf("%q is not the name of a variable", s), "use letters, digits and _")
	case s == "HOME":
		r.Add(at, s, "HOME is the cell's own", "home: NAME keeps one across runs")
	case strings.HasPrefix(s, "SKEP_"):
		r.Add(at, s, "names that begin with SKEP_ are Skep's own", "choose another name")
	default:
		return true
	}
	return false
}
