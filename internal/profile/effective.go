package profile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/right/declared"
	"skep.dev/skep/internal/strict"
)

// Effective is the canonical text of the profile, itself a profile: paths are
// absolute, defaults written out, lists sorted, comments gone. What `skep
// check --effective` shows and [Profile.Digest] hashes.
func (p *Profile) Effective() string {
	var b strings.Builder
	b.WriteString("version: v1\n")
	p.effectivePaths(&b)
	p.effectiveNet(&b)
	p.effectiveSecrets(&b)
	if len(p.Model.Roles) > 0 {
		parts := []string{"roles: [" + strings.Join(quoteAll(p.Model.Roles), ", ") + "]"}
		if v, ok := p.Model.Tokens.Value(); ok {
			parts = append(parts, fmt.Sprintf("tokens: %d", v))
		}
		if v, ok := p.Model.Money.Value(); ok {
			parts = append(parts, "usd: "+strict.FormatFixed(v, 6))
		}
		b.WriteString("model: {" + strings.Join(parts, ", ") + "}\n")
	}
	p.effectiveBudget(&b)
	if p.Home != "" {
		b.WriteString("home: " + quote(p.Home) + "\n")
	}
	p.effectiveEnv(&b)
	if p.Raw {
		b.WriteString("terminal: raw\n")
	}
	if p.Agent.Granted {
		b.WriteString("agent_socket: " + p.Agent.String() + "\n")
	}
	return b.String()
}

func (p *Profile) effectivePaths(b *strings.Builder) {
	words := map[right.Access]string{}
	for word, access := range rightsWords() {
		words[access] = word
	}
	var lines []string
	for _, r := range p.Paths {
		lines = append(lines, fmt.Sprintf("  - {path: %s, rights: %s}\n", quote(r.At), words[r.Access]))
	}
	section(b, "paths", lines)
}

func (p *Profile) effectiveNet(b *strings.Builder) {
	var lines []string
	for _, r := range p.Net {
		lines = append(lines, "  - {"+netFields(r)+"}\n")
	}
	section(b, "net", lines)
	if p.NoDesk {
		b.WriteString("policy_endpoint: off\n")
	}
	if p.AskUnlisted {
		b.WriteString("unlisted: ask\n")
	}
	lines = nil
	for _, r := range p.Resolved {
		lines = append(lines, fmt.Sprintf("  - {cidr: %s, ports: [%s]}\n", quote(r.Prefix.String()), ports(r.Ports)))
	}
	section(b, "resolved_addresses", lines)
}

func (p *Profile) effectiveSecrets(b *strings.Builder) {
	var lines []string
	for _, s := range p.Secrets {
		lines = append(lines, "  - {"+s.Text(quote)+"}\n")
	}
	section(b, "secrets", lines)
}

// section writes a sorted list, or nothing: order and repeats have no meaning.
func section(b *strings.Builder, key string, lines []string) {
	if len(lines) == 0 {
		return
	}
	slices.Sort(lines)
	b.WriteString(key + ":\n" + strings.Join(slices.Compact(lines), ""))
}

func netFields(r declared.NetRule) string {
	var parts []string
	for part := range strings.SplitSeq(r.Dest.String(), " ") {
		key, value, _ := strings.Cut(part, "=")
		if key != "depth" {
			value = quote(value)
		}
		parts = append(parts, key+": "+value)
	}
	parts = append(parts, "ports: ["+ports(r.Ports)+"]",
		"transports: ["+strings.Join(r.Transports.Words(), ", ")+"]", "inner: "+r.Inner.String())
	if r.HTTP {
		parts = append(parts, "http: true")
	}
	for _, list := range []struct {
		key   string
		texts []string
	}{{"methods", r.Methods}, {"paths", r.Paths}} {
		if len(list.texts) == 0 {
			continue
		}
		var quoted []string
		for _, text := range list.texts {
			quoted = append(quoted, quote(text))
		}
		parts = append(parts, list.key+": ["+strings.Join(quoted, ", ")+"]")
	}
	if r.Ask {
		parts = append(parts, "ask: true")
	}
	if r.Hold > 0 {
		parts = append(parts, "hold: "+strict.FormatTime(r.Hold.Milliseconds()))
	}
	if r.NoECH {
		parts = append(parts, "ech: refuse")
	}
	if r.EncodedSlash {
		parts = append(parts, "encoded_slash: true")
	}
	if r.Correlate {
		parts = append(parts, "correlate: true")
	}
	if len(r.Resolve) > 0 {
		var addrs []string
		for _, a := range r.Resolve {
			addrs = append(addrs, quote(a.String()))
		}
		parts = append(parts, "resolve: ["+strings.Join(addrs, ", ")+"]")
	}
	if r.ID != "" {
		parts = append(parts, "id: "+quote(r.ID))
	}
	return strings.Join(parts, ", ")
}

func ports(ps right.Ports) string { return strings.ReplaceAll(ps.String(), ",", ", ") }

func (p *Profile) effectiveBudget(b *strings.Builder) {
	var lines []string
	for _, k := range amountKeys() {
		v, ok := k.limit(&p.Budget.Budget).Value()
		switch {
		case !ok:
		case p.Budget.Optional(k.key):
			lines = append(lines, fmt.Sprintf("  %s: {limit: %s, if_available: true}\n", k.key, k.print(v)))
		default:
			lines = append(lines, fmt.Sprintf("  %s: %s\n", k.key, k.print(v)))
		}
	}
	section(b, "budget", lines)
}

func (p *Profile) effectiveEnv(b *strings.Builder) {
	var lines []string
	if len(p.Env.Pass) > 0 {
		lines = append(lines, "  pass: ["+strings.Join(quoteAll(p.Env.Pass), ", ")+"]\n")
	}
	if len(p.Env.Set) > 0 {
		var vars []string
		for _, name := range slices.Sorted(maps.Keys(p.Env.Set)) {
			vars = append(vars, quote(name)+": "+quote(p.Env.Set[name]))
		}
		lines = append(lines, "  set: {"+strings.Join(vars, ", ")+"}\n")
	}
	section(b, "env", lines)
}

// quote always quotes: what is plain text in one reader of YAML is a number or
// a date in another. Non-ASCII is escaped, so that the text shows what it is.
func quote(s string) string { return strconv.QuoteToASCII(s) }

func quoteAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return out
}
