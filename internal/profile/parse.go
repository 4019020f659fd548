package profile

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/right/declared"
	"skep.dev/skep/internal/secret/listed"
	"skep.dev/skep/internal/strict"
)

// Place is where a profile's relative paths begin.
type Place struct {
	Dir  string // absolute: the profile's directory, for ./x
	Home string // absolute, or "" where ~ has no meaning: for ~/x
}

// Parse reads a profile that stands in the directory of file. It gives a
// profile or faults, never both.
func Parse(file string, src []byte) (*Profile, Faults) {
	return ParseAt(file, Place{Dir: filepath.Dir(file)}, src)
}

// ParseAt reads a profile whose relative paths begin at a place; file only
// names it.
func ParseAt(file string, at Place, src []byte) (*Profile, Faults) {
	root, r := strict.Read(file, src)
	p := &Profile{File: file, Dir: at.Dir, lines: map[string]int{}, source: r.Source()}
	if root != nil {
		parser{r, p, at}.all(root)
	}
	if faults := r.Faults(); faults != nil {
		return nil, faults
	}
	return p, nil
}

type parser struct {
	*strict.Report
	p  *Profile
	at Place
}

func (r parser) all(root *strict.Node) {
	f, ok := r.Fields(root, "a profile", "paths: [...]", sectionKeys()[""])
	if !ok {
		return
	}
	for _, field := range root.Fields {
		r.p.lines[field.Key] = field.At.Line
		if slices.Contains(laterKeys(), field.Key) {
			r.Unsupported(field.At, field.Key, field.Key)
		}
	}
	// What agent_socket makes, env must not: it is read after it.
	defer func() {
		if v, ok := f["agent_socket"]; ok {
			r.agentSocket(v)
		}
	}()
	if v, ok := f["env"]; ok {
		r.env(v)
	}
	if v, ok := f["secrets"]; ok { // before net, whose rules may admit only some of their requests
		r.p.Secrets = listed.Read(r.Report, v, listed.Form{Path: r.absolute, Variable: r.variable})
	}
	before := r.Len()
	if v, ok := f["net"]; ok {
		r.net(v)
	}
	if r.Len() == before { // else it may be a rule with a fault that would cover one
		listed.Covered(r.Report, r.p.Secrets, r.p.Net)
	}
	readers := map[string]func(*strict.Node){
		"version": r.version, "paths": r.paths, "unlisted": r.unlisted, "policy_endpoint": r.desk,
		"resolved_addresses": r.resolved, "model": r.model, "budget": r.budget, "ledger": r.ledger,
		"home": r.home, "terminal": r.terminal,
	}
	for key, read := range readers {
		if v, ok := f[key]; ok {
			read(v)
		}
	}
}

func (r parser) version(n *strict.Node) { r.OneOf(n, "version", "v1") }

func (r parser) net(n *strict.Node) {
	// B86: in a profile, absent ports mean 443.
	https, _ := right.NewPorts(right.PortRange{First: 443, Last: 443})
	r.p.Net = declared.Nets(r.Report, n, "net", declared.Defaults{
		Ports: https, Transports: right.TCP, Names: true, Bound: listed.Bound(r.p.Secrets),
	})
}

func (r parser) unlisted(n *strict.Node) {
	word, ok := r.OneOf(n, "unlisted", "deny", "ask")
	r.p.AskUnlisted = ok && word == "ask"
}

func (r parser) desk(n *strict.Node) {
	word, ok := r.OneOf(n, "policy_endpoint", "on", "off")
	r.p.NoDesk = ok && word == "off"
}

func (r parser) resolved(n *strict.Node) {
	https, _ := right.NewPorts(right.PortRange{First: 443, Last: 443})
	r.p.Resolved = declared.Ranges(r.Report, n, "resolved_addresses", https, true)
}

func (r parser) model(n *strict.Node) {
	const example = "model: {roles: [coder], tokens: 200_000, usd: 5.00}"
	f, ok := r.Fields(n, "model", example, sectionKeys()["model"])
	if !ok {
		return
	}
	var m right.Model
	if v, ok := f["roles"]; ok {
		for _, item := range r.Strs(v, "roles", "[coder]") {
			if _, err := right.NewModel(right.Model{Roles: []string{item.Text}}); err != nil {
				r.Fault(item, err.Error(), "write the role as the operator's config names it")
			}
			m.Roles = append(m.Roles, item.Text)
		}
	} else {
		r.Add(n.Pos, "model", "model has no roles, so it grants nothing", "add roles: [coder]")
	}
	if v, ok := f["tokens"]; ok {
		if tokens, ok := r.Count(v, "tokens", "200_000"); ok {
			m.Tokens = right.AtMost(tokens)
		}
	}
	if v, ok := f["usd"]; ok {
		if micro, ok := r.Fixed(v, "usd", "5.00", 6); ok {
			m.Money = right.AtMost(micro)
		}
	}
	r.p.Model, _ = right.NewModel(m) // each role was checked above
}

func (r parser) ledger(n *strict.Node) {
	f, ok := r.Fields(n, "ledger", "{model: digest}", sectionKeys()["ledger"])
	if !ok {
		return
	}
	if v, ok := f["exec"]; ok {
		r.Unsupported(v.Pos, v.Text, "ledger.exec")
	}
	if v, ok := f["model"]; ok {
		if word, ok := r.OneOf(v, "ledger.model", "digest", "full"); ok && word == "full" {
			r.Unsupported(v.Pos, v.Text, "ledger.model: full")
		}
	}
}

func (r parser) home(n *strict.Node) {
	s, ok := r.Str(n, "home", "work")
	if !ok {
		return
	}
	plain := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' }
	if len(s) > 32 || s[0] == '-' || strings.ContainsFunc(s, func(c rune) bool { return !plain(c) }) {
		r.Fault(n, fmt.Sprintf("home cannot be %q", s),
			"give the kept home a name of a-z, 0-9 and -, at most 32; it is never a path of the host")
		return
	}
	r.p.Home = s
}

func (r parser) terminal(n *strict.Node) {
	_, r.p.Raw = r.OneOf(n, "terminal", "raw")
}
