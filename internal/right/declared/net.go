package declared

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/strict"
)

// NetRule is one rule of a `net:` list and where it stands.
type NetRule struct {
	right.Net
	ID     string // the rule's own `id`, or ""
	File   string
	Line   int
	Column int
	// Hold is how long a flow waits for the person who is asked (B140); 0: it is refused.
	Hold time.Duration
	// NoECH refuses a TLS hello that may hide another name than its own (B114).
	NoECH bool
	// Correlate has HTTP requests that can be read carry the flow's id (B84).
	Correlate bool
}

// Defaults are what absent ports and transports mean in a form (B86).
type Defaults struct {
	Ports      right.Ports
	Transports right.Transports
	// Names: the boundary itself answers datagrams to port 53, so that a rule lets none
	// through (B54).
	Names bool
	// Deny: the rules take away. Their port ranges include the mail ports,
	// which in a rule that grants must each be named (B82).
	Deny bool
	// Bound tells where a secret goes, whose requests are read inside TLS; nil: nowhere.
	Bound func(host string, port uint16) bool
}

// NetKeys are the keys of a rule, for the published schema too.
func NetKeys() []string {
	return []string{"name", "suffix", "ip", "cidr", "depth", "ports", "transports", "id", "inner", "http",
		"resolve", "ask", "hold", "methods", "paths", "encoded_slash", "correlate", "udp", "ech"}
}

const netExample = "- {name: proxy.example.org}"

// AutoID, with its place in the list from 1, is the id of a rule that has none.
const AutoID = "net-"

// answerID begins what an answer to a question is called as a rule (internal/approval).
const answerID = "approval-"

// MaxRules bounds a list (B150).
const MaxRules = 1000

// Nets reads a list of rules. Rules with a fault are left out of the result.
func Nets(r *strict.Report, n *strict.Node, what string, d Defaults) []NetRule {
	var out []NetRule
	ids := map[string]int{}
	items := r.Items(n, what, netExample)
	if len(items) > MaxRules {
		r.Fault(n, fmt.Sprintf("%s has %d rules", what, len(items)), fmt.Sprintf("at most %d are read", MaxRules))
		return nil
	}
	for _, item := range items {
		rule, ok := net(r, item, what, d)
		if !ok {
			continue
		}
		if line, twice := ids[rule.ID]; twice && rule.ID != "" {
			r.Fault(item, fmt.Sprintf("id %q is used twice", rule.ID), fmt.Sprintf("line %d has it; choose another", line))
			continue
		}
		ids[rule.ID] = rule.Line
		out = append(out, rule)
	}
	return out
}

// net reads one rule. It goes on after a fault, to find them all.
func net(r *strict.Report, item *strict.Node, what string, d Defaults) (NetRule, bool) {
	before := r.Len()
	f, ok := r.Fields(item, "a rule of "+what, netExample, NetKeys())
	if !ok {
		return NetRule{}, false
	}
	rule := NetRule{File: r.File(), Line: item.Line, Column: item.Column}
	rule.Dest = dest(r, item, f)
	rule.Ports, rule.Transports = d.Ports, d.Transports
	if v, ok := f["ports"]; ok {
		rule.Ports = Ports(r, v, d.Deny)
	}
	datagrams(r, &rule, f, d)
	if v, ok := f["id"]; ok {
		rule.ID = id(r, v)
	}
	for _, key := range []string{"inner", "http", "resolve", "methods", "paths", "encoded_slash", "correlate", "ask", "hold", "ech"} {
		if v, ok := f[key]; ok && d.Deny {
			r.Fault(v, key+" says how a flow must be, and "+what+" lets none through", "remove it")
		}
	}
	if v, ok := f["http"]; ok {
		rule.HTTP, _ = r.Flag(v, "http")
	}
	if v, ok := f["inner"]; ok {
		if word, ok := r.OneOf(v, "inner", "check", "tls", "off"); ok {
			rule.Inner, _ = right.ParseInner(word)
		}
	}
	if v, ok := f["resolve"]; ok {
		rule.Resolve = resolve(r, v)
	}
	requests(r, &rule, f, d)
	if v, ok := f["ask"]; ok {
		rule.Ask, _ = r.Flag(v, "ask")
	}
	if v, ok := f["ech"]; ok {
		rule.NoECH = ech(r, v, rule)
	}
	if v, ok := f["hold"]; ok {
		rule.Hold = hold(r, v, rule.Ask)
	}
	if r.Len() > before || rule.Dest.Kind == right.NoDest {
		return NetRule{}, false // the fault is noted; an alias already was while reading
	}
	checked, err := right.NewNet(rule.Net)
	if err != nil {
		r.Fault(item, err.Error(), "correct the rule")
		return NetRule{}, false
	}
	rule.Net = checked
	return rule, true
}

// ech takes whether a hello may hide a name, which has to be read for that.
func ech(r *strict.Report, v *strict.Node, rule NetRule) (refuse bool) {
	word, _ := r.OneOf(v, "ech", "pass", "refuse")
	if word == "refuse" && (rule.Inner == right.InnerOff || rule.Inner == right.InnerDefault && rule.Dest.Kind == right.Literal) {
		r.Fault(v, "ech: refuse needs the first bytes to be read, and this rule reads none", "write inner: tls, or remove ech")
	}
	return word == "refuse"
}

// hold takes how long a flow waits for the answer.
func hold(r *strict.Report, v *strict.Node, asks bool) time.Duration {
	ms, ok := r.Time(v, "hold", "30s")
	hold := time.Duration(ms) * time.Millisecond
	switch {
	case ok && !asks:
		r.Fault(v, "hold is how long a flow waits for a person, and this rule asks nobody", "add ask: true, or remove hold")
	case ok && hold > limit.MaxHold:
		r.Fault(v, fmt.Sprintf("hold cannot be %s", v.Text), "at most 120s")
	}
	return hold
}

// id takes a rule's own name, which is none of those that Skep gives the others.
func id(r *strict.Report, v *strict.Node) string {
	word, _ := r.Str(v, "id", "go-proxy")
	if strings.HasPrefix(word, answerID) {
		r.Fault(v, fmt.Sprintf("id %q begins as the answers of people do", word), "choose another, for example go-proxy")
	}
	if place, ours := strings.CutPrefix(word, AutoID); ours && place != "" && strings.Trim(place, "0123456789") == "" {
		r.Fault(v, fmt.Sprintf("id %q is what Skep calls a rule without an id", word), "choose another, for example go-proxy")
	}
	return word
}

// instead is what to write for a text that is no destination of its form: for an
// address in place of a name the key that takes it.
func instead(key, text, other string) string {
	if addr, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil && key == "name" {
		return fmt.Sprintf("write ip: %q", addr)
	}
	if prefix, err := netip.ParsePrefix(text); err == nil && (key == "name" || key == "ip") {
		return fmt.Sprintf("write cidr: %q", prefix.Masked())
	}
	return other
}

// dest takes the one of name, suffix, ip and cidr, with depth.
func dest(r *strict.Report, item *strict.Node, f map[string]*strict.Node) right.Dest {
	var d right.Dest
	first := ""
	for _, form := range []struct {
		key, example string
		parse        func(string) (right.Dest, error)
	}{
		{"name", "proxy.example.org", right.ParseDestName},
		{"suffix", `"*.example.org"`, right.ParseDestSuffix},
		{"ip", "10.0.1.50", right.ParseDestIP},
		{"cidr", "10.0.0.0/8", right.ParseDestCIDR},
	} {
		v, ok := f[form.key]
		if !ok {
			continue
		}
		if first != "" {
			r.Fault(v, fmt.Sprintf("a rule has both %s and %s", first, form.key), "write two rules")
			continue
		}
		first = form.key
		s, ok := r.Str(v, form.key, form.example)
		if !ok {
			continue
		}
		parsed, err := form.parse(s)
		if err != nil {
			r.Fault(v, err.Error(), instead(form.key, v.Text, "for example "+form.key+": "+form.example))
			continue
		}
		d = parsed
	}
	if first == "" {
		r.Add(item.Pos, "", "a rule names none of name, suffix, ip, cidr", "add one, for example name: proxy.example.org")
	}
	if v, ok := f["depth"]; ok {
		depth, ok := r.Count(v, "depth", "1")
		switch {
		case ok && depth > right.MaxDepth:
			r.Fault(v, fmt.Sprintf("depth cannot be %d", depth), fmt.Sprintf("at most %d; leave it out for every depth", right.MaxDepth))
		case ok && d.Kind != right.Suffix && d.Kind != right.NoDest:
			r.Fault(v, "depth needs a suffix", `write suffix: "*.example.org", or remove depth`)
		case ok:
			d.Depth = int(depth)
		}
	}
	return d
}

// Ports reads [443, 8000-8010]. With mail, ranges include the mail ports.
func Ports(r *strict.Report, n *strict.Node, mail bool) right.Ports {
	const example = "[443, 8000-8010]"
	var ranges []right.PortRange
	for _, item := range r.Items(n, "ports", example) {
		if item.Quoted || item.Kind != strict.Int && item.Kind != strict.String {
			r.Fault(item, "a port must be a number or a range a-b, without quotes", "for example "+example)
			continue
		}
		pr, err := right.ParsePortRange(item.Text)
		if err != nil {
			r.Fault(item, err.Error(), "for example "+example)
			continue
		}
		ranges = append(ranges, pr)
		for p := uint32(pr.First); mail && p <= uint32(pr.Last); p++ {
			if right.IsMail(uint16(p)) {
				ranges = append(ranges, right.PortRange{First: uint16(p), Last: uint16(p)})
			}
		}
	}
	ps, err := right.NewPorts(ranges...)
	if err != nil {
		r.Fault(n, err.Error(), "for example "+example)
	}
	return ps
}

// datagrams takes transports, or udp, which adds one; and finds what a rule for nothing
// but datagrams cannot mean: they are not read (B114).
func datagrams(r *strict.Report, rule *NetRule, f map[string]*strict.Node, d Defaults) {
	v, ok := f["transports"]
	if ok {
		rule.Transports = transports(r, v)
	}
	if u, also := f["udp"]; also {
		on, _ := r.Flag(u, "udp")
		switch {
		case ok:
			r.Fault(u, "a rule has both transports and udp", "write transports: [tcp, udp]")
		case on:
			rule.Transports |= right.UDP
		}
	}
	if rule.Transports != right.UDP || d.Deny {
		return
	}
	for _, key := range []string{"inner", "http", "ech"} {
		if of, ok := f[key]; ok && of.Text != "off" && of.Text != "false" && of.Text != "pass" {
			r.Fault(of, key+" says what a connection begins with, and a rule with transport udp alone carries datagrams", "remove it")
		}
	}
	if one := (right.Ports{{First: 53, Last: 53}}); d.Names && slices.Equal(rule.Ports, one) {
		r.Fault(v, "datagrams to port 53 are answered by Skep itself, whatever address they are sent to", "remove the rule; names resolve without one")
	}
}

func transports(r *strict.Report, n *strict.Node) right.Transports {
	var words []string
	for _, item := range r.Strs(n, "transports", "[tcp]") {
		if word, ok := r.OneOf(item, "a transport", "tcp", "udp"); ok {
			words = append(words, word)
		}
	}
	t, _ := right.ParseTransports(words) // Strs has refused repeats
	return t
}

func resolve(r *strict.Report, n *strict.Node) []netip.Addr {
	var out []netip.Addr
	for _, item := range r.Items(n, "resolve", "[10.0.1.50]") {
		a, err := netip.ParseAddr(item.Text)
		if err != nil || a.Zone() != "" {
			r.Fault(item, "resolve lists addresses, not "+strconv.Quote(item.Text), "for example [10.0.1.50]")
			continue
		}
		out = append(out, a.Unmap())
	}
	return out
}

// Range is an address range with ports, of `resolved_addresses` and `open`.
type Range struct {
	Prefix netip.Prefix
	Ports  right.Ports
	Line   int
}

// Covers tells whether child lies inside, with no other port.
func (r Range) Covers(child Range) bool {
	return r.Prefix.Bits() <= child.Prefix.Bits() && r.Prefix.Contains(child.Prefix.Addr()) && r.Ports.Covers(child.Ports)
}

// Ranges reads a list of {cidr, ports}. With special, each must lie inside one
// range of table S (B85).
func Ranges(r *strict.Report, n *strict.Node, what string, absent right.Ports, special bool) []Range {
	const example = "- {cidr: 10.0.0.0/8, ports: [5432]}"
	var out []Range
	for _, item := range r.Items(n, what, example) {
		f, ok := r.Fields(item, "an entry of "+what, example, []string{"cidr", "ports"})
		if !ok {
			continue
		}
		v, ok := f["cidr"]
		if !ok {
			r.Add(item.Pos, "", "an entry of "+what+" has no cidr", example)
			continue
		}
		s, ok := r.Str(v, "cidr", "10.0.0.0/8")
		if !ok {
			continue
		}
		p, err := right.ParseCIDR(s)
		if err != nil {
			r.Fault(v, err.Error(), "for example "+example)
			continue
		}
		if special && !right.InOneSpecial(p) {
			r.Fault(v, fmt.Sprintf("%s is not inside one special-purpose range", p),
				"public addresses need no entry; name a private range such as 10.0.0.0/8")
			continue
		}
		entry := Range{Prefix: p, Ports: absent, Line: item.Line}
		if v, ok := f["ports"]; ok {
			entry.Ports = Ports(r, v, false)
		}
		out = append(out, entry)
	}
	return out
}
