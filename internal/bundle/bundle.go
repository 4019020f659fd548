package bundle

import (
	"fmt"
	"strings"

	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/right/declared"
	"skep.dev/skep/internal/secret/listed"
	"skep.dev/skep/internal/strict"
)

const maxID = 256 // bytes of an id that a platform gave

// Bundle is one agent. Its zero value reaches nothing.
type Bundle struct {
	Agent      string // DNS-shaped, stable across hosts (B214)
	ExternalID string // what the credential's subject must be; empty only where nothing is verified
	Credential string // path of the file that holds it; empty only where nothing is verified
	Allow      []declared.NetRule
	Serves     *Serves // nil: nothing of it is reached from outside
	Secrets    []listed.Secret
	Warnings   []string // what is allowed and probably not meant
}

// Serves is the one thing that an agent serves: itself (B170).
type Serves = declared.Serves

// Parse reads a bundle of at most strict.MaxBytes; file is the name under which faults
// are told.
func Parse(file string, src []byte) (*Bundle, strict.Faults) {
	root, r := strict.Read(file, src)
	b := &Bundle{}
	switch {
	case root != nil:
		b.read(r, root)
	case r.Len() == 0:
		r.Add(strict.Pos{}, "", "the bundle is empty", "write version: v1 and an agent")
	}
	if faults := r.Faults(); faults != nil {
		return nil, faults
	}
	return b, nil
}

func (b *Bundle) read(r *strict.Report, root *strict.Node) {
	const example = "agent: {id: reviewer-7.prod.acme.example}"
	f, ok := r.Fields(root, "a bundle", example, []string{"version", "agent", "egress", "serves"})
	if !ok {
		return
	}
	if v, ok := f["version"]; ok {
		r.OneOf(v, "version", "v1")
	} else {
		r.Add(root.Pos, "", "a bundle names no version", "add version: v1")
	}
	if v, ok := f["agent"]; ok {
		b.agent(r, v)
	} else {
		r.Add(root.Pos, "", "a bundle names no agent", "add "+example)
	}
	if v, ok := f["egress"]; ok {
		b.egress(r, v)
	}
	if v, ok := f["serves"]; ok {
		b.Serves = declared.ReadServes(r, v)
	}
}

func (b *Bundle) agent(r *strict.Report, n *strict.Node) {
	f, ok := r.Fields(n, "agent", "agent: {id: reviewer-7.prod.acme.example}", []string{"id", "external_id", "credential"})
	if !ok {
		return
	}
	if v, ok := f["id"]; ok {
		id, ok := r.Str(v, "the id of an agent", "reviewer-7.prod.acme.example")
		if plain, err := name.Host(id); ok && (err != nil || plain != id || name.UnderAlt(id)) {
			r.Fault(v, "the id of an agent is a host name in lower case", "for example reviewer-7.prod.acme.example")
		}
		b.Agent = id
	} else {
		r.Add(n.Pos, "", "the agent has no id", "add id: reviewer-7.prod.acme.example")
	}
	b.ExternalID = text(r, f["external_id"], "external_id", "system:serviceaccount:prod:reviewer-7")
	b.Credential = text(r, f["credential"], "credential", "/run/credentials/reviewer-7.jwt")
	if b.Credential != "" && !strings.HasPrefix(b.Credential, "/") {
		r.Fault(f["credential"], "credential is the path of a file, from the root", "for example /run/credentials/reviewer-7.jwt")
	}
}

// text takes a value that may be left out.
func text(r *strict.Report, n *strict.Node, what, example string) string {
	if n == nil {
		return ""
	}
	s, _ := r.Str(n, what, example)
	if len(s) > maxID || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		r.Fault(n, fmt.Sprintf("%s is longer than %d bytes, or holds a control character", what, maxID), "for example "+example)
	}
	return s
}

func (b *Bundle) egress(r *strict.Report, n *strict.Node) {
	f, ok := r.Fields(n, "egress", "egress: {allow: [api.example.org:443]}", []string{"allow", "secrets"})
	if !ok {
		return
	}
	if v, ok := f["secrets"]; ok { // before allow, whose rules may admit only some of their requests
		b.Secrets = listed.Read(r, v, listed.Form{Path: fromRoot, Connector: true})
	}
	before := r.Len()
	if v, ok := f["allow"]; ok {
		b.allow(r, v)
	}
	if r.Len() == before {
		listed.Covered(r, b.Secrets, b.Allow)
	}
}

// fromRoot takes a path of a file from the root.
func fromRoot(path string) (full, message, fix string) {
	if !strings.HasPrefix(path, "/") {
		return "", "the path of a file from the root is needed", `for example "file:/run/secrets/github"`
	}
	return path, "", ""
}

func (b *Bundle) allow(r *strict.Report, n *strict.Node) {
	b.Allow = rules(r, n, listed.Bound(b.Secrets))
	for _, rule := range b.Allow {
		if rule.Ports.Covers(everyPort()) {
			b.Warnings = append(b.Warnings, fmt.Sprintf("line %d: %s is allowed on every port; name the ports that are meant", rule.Line, rule.Dest))
		}
	}
}

// everyPort is what a rule without ports means here (B86); the mail ports must be named (B82).
func everyPort() right.Ports {
	all, _ := right.NewPorts(right.PortRange{First: 1, Last: 65535}) // constant, and valid
	return all
}

// rules reads a list of rules, of which some may be short forms.
func rules(r *strict.Report, n *strict.Node, bound func(string, uint16) bool) []declared.NetRule {
	long := *n
	if n.Kind == strict.List {
		long.Items = nil
		for _, item := range n.Items {
			if host, port, is := unquoted(item); is {
				r.Add(item.Pos, host, fmt.Sprintf("%s:%s without quotes is a mapping here", host, port), fmt.Sprintf("write %q", host+":"+port))
				continue
			}
			long.Items = append(long.Items, expand(item))
		}
	}
	return declared.Nets(r, &long, "allow", declared.Defaults{Ports: everyPort(), Transports: right.TCP, Bound: bound})
}

// unquoted tells a host:port that was read as a mapping, as between brackets.
func unquoted(n *strict.Node) (host, port string, is bool) {
	if n.Kind != strict.Map || len(n.Fields) != 1 {
		return "", "", false
	}
	f := n.Fields[0]
	return f.Key, f.Value.Text, strings.Contains(f.Key, ".") && f.Value.Kind == strict.Int
}

// expand makes a rule of `host`, `*.x` or `host:port`.
func expand(n *strict.Node) *strict.Node {
	if n.Kind != strict.String || n.Text == "" {
		return n
	}
	field := func(key string, value *strict.Node) strict.Field {
		return strict.Field{Key: key, At: n.Pos, Value: value}
	}
	host, port, hasPort := strings.Cut(n.Text, ":")
	if strings.Contains(port, ":") { // an address, which a name refuses with what to write
		host, hasPort = n.Text, false
	}
	rule := &strict.Node{Pos: n.Pos, Kind: strict.Map, Fields: []strict.Field{field("name", &strict.Node{Pos: n.Pos, Kind: strict.String, Text: host, Quoted: true})}}
	if hasPort {
		rule.Fields = append(rule.Fields, field("ports", &strict.Node{Pos: n.Pos, Kind: strict.List, Items: []*strict.Node{{Pos: n.Pos, Kind: strict.Int, Text: port}}}))
	}
	return rule
}

// Short reads what --egress-allow lists, for a cell without a bundle (B86). Such a cell
// has no identity (B214).
func Short(entries []string) (*Bundle, strict.Faults) {
	var list strings.Builder
	for _, e := range entries {
		list.WriteString("- '" + strings.ReplaceAll(e, "'", "''") + "'\n")
	}
	n, r := strict.Read("--egress-allow", []byte(list.String()))
	b := &Bundle{}
	if n != nil {
		b.allow(r, n)
	}
	if faults := r.Faults(); faults != nil {
		return nil, faults
	}
	return b, nil
}
