package right

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"skep.dev/skep/internal/right/request"
)

// Transports is a set of TCP and UDP. The zero set matches nothing.
type Transports uint8

// The members of a Transports.
const (
	TCP Transports = 1 << iota
	UDP
)

// Words are the members' names, in order.
func (t Transports) Words() []string {
	var out []string
	for i, word := range []string{"tcp", "udp"} {
		if t&(1<<i) != 0 {
			out = append(out, word)
		}
	}
	return out
}

// ParseTransports takes "tcp" and "udp", each at most once.
func ParseTransports(words []string) (Transports, error) {
	var t Transports
	for _, w := range words {
		bit := map[string]Transports{"tcp": TCP, "udp": UDP}[w]
		if bit == 0 || t&bit != 0 {
			return 0, fmt.Errorf("transport %q: want tcp and udp, each once", w)
		}
		t |= bit
	}
	return t, nil
}

// Inner is what the agent's first bytes must be (B110), from the weakest
// demand to the strongest.
type Inner uint8

// The zero Inner stands for the default: check for names and HTTP, off for literals.
const (
	InnerDefault Inner = iota
	InnerOff
	InnerCheck
	InnerTLS
)

// String is the word of a profile.
func (i Inner) String() string { return [...]string{"", "off", "check", "tls"}[i&3] }

// ParseInner takes off, check or tls.
func ParseInner(s string) (Inner, error) {
	for _, i := range []Inner{InnerOff, InnerCheck, InnerTLS} {
		if i.String() == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("inner %q: want check, tls or off", s)
}

// Net is one egress rule: where to, and what is demanded of the flow. The
// rules of a set are read together: see [Nets].
type Net struct {
	Dest       Dest
	Ports      Ports
	Transports Transports
	Methods    []string // of HTTP; none: every one
	Paths      []string // exact, or a prefix ending in "/*"; none: every one
	// EncodedSlash lets Paths match paths with one in it (B83).
	EncodedSlash bool
	Ask          bool         // a person decides
	Inner        Inner        // what is inside must be this
	HTTP         bool         // HTTP is demanded and Host is checked, as on port 80
	Resolve      []netip.Addr // what an exact name resolves to; nobody is asked (B84)
}

// NewNet makes the canonical rule; it refuses what cannot match and what
// contradicts itself.
func NewNet(n Net) (Net, error) {
	switch {
	case n.Dest.Kind == NoDest:
		return Net{}, errors.New("a net rule names one of name, suffix, ip, cidr")
	case n.Dest.Depth < 0 || n.Dest.Depth > MaxDepth || n.Dest.Depth > 0 && n.Dest.Kind != Suffix:
		return Net{}, fmt.Errorf("depth %d: want 1 to %d, with a suffix", n.Dest.Depth, MaxDepth)
	case len(n.Ports) == 0:
		return Net{}, errors.New("a net rule without ports matches nothing")
	case n.Transports == 0 || n.Transports > TCP|UDP:
		return Net{}, errors.New("a net rule needs tcp or udp")
	case len(n.Resolve) > 0 && n.Dest.Kind != Name:
		return Net{}, errors.New("resolve needs an exact name")
	case n.HTTP && (n.Inner == InnerTLS || n.Inner == InnerOff):
		return Net{}, fmt.Errorf("http: true and inner: %s contradict each other", n.Inner)
	case n.Dest.Kind == Literal && n.Inner == InnerCheck && !n.HTTP:
		return Net{}, errors.New("inner: check compares names, and an address has none; write inner: tls or http: true")
	}
	if err := request.Check(n.Methods, n.Paths, n.EncodedSlash); err != nil {
		return Net{}, err
	}
	n.Methods, n.Paths = sortedSet(n.Methods, strings.Compare), sortedSet(n.Paths, strings.Compare)
	n.Resolve = sortedSet(n.Resolve, netip.Addr.Compare)
	if n.Inner == InnerDefault {
		n.Inner = n.defaultInner()
	}
	return n, nil
}

// defaultInner: an address has no name to check, but where HTTP is demanded the
// Host of each request must be the address (B110, B112).
func (n Net) defaultInner() Inner {
	if n.Dest.Kind == Literal && !n.HTTP {
		return InnerOff
	}
	return InnerCheck
}

func sortedSet[T comparable](s []T, compare func(a, b T) int) []T {
	if len(s) == 0 {
		return nil
	}
	out := slices.Clone(s)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// String is the canonical text, such as "name=api.example.org ports=443
// transports=tcp". What is the default of its kind is left out, but not ports
// and transports: a reader should see them.
func (n Net) String() string {
	if n.Dest.Kind == NoDest {
		return ""
	}
	var p pairs
	p.b.WriteString(n.Dest.String())
	p.add("ports", n.Ports.String())
	p.list("transports", n.Transports.Words())
	p.list("methods", n.Methods)
	p.list("paths", n.Paths)
	if n.EncodedSlash {
		p.add("encoded_slash", "true")
	}
	if n.Ask {
		p.add("ask", "true")
	}
	if n.Inner != n.defaultInner() {
		p.add("inner", n.Inner.String())
	}
	if n.HTTP {
		p.add("http", "true")
	}
	p.list("resolve", addrWords(n.Resolve))
	return p.b.String()
}

func addrWords(addrs []netip.Addr) []string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a.String()
	}
	return out
}

// ParseNet takes what String gives.
func ParseNet(text string) (Net, error) {
	n, err := parseNet(text)
	return roundTrip("net", text, n, err)
}

func parseNet(text string) (Net, error) {
	parts, err := parsePairs(text, "name", "suffix", "depth", "ip", "cidr", "ports", "transports",
		"methods", "paths", "encoded_slash", "ask", "inner", "http", "resolve")
	if err != nil {
		return Net{}, err
	}
	n := Net{Methods: pairList(parts, "methods"), Paths: pairList(parts, "paths"),
		EncodedSlash: parts["encoded_slash"] == "true", Ask: parts["ask"] == "true", HTTP: parts["http"] == "true"}
	if n.Dest, err = parseDest(parts); err != nil {
		return Net{}, err
	}
	if n.Ports, err = ParsePorts(parts["ports"]); err != nil {
		return Net{}, err
	}
	if n.Transports, err = ParseTransports(pairList(parts, "transports")); err != nil {
		return Net{}, err
	}
	if word, ok := parts["inner"]; ok {
		if n.Inner, err = ParseInner(word); err != nil {
			return Net{}, err
		}
	}
	for _, word := range pairList(parts, "resolve") {
		a, err := netip.ParseAddr(word)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return Net{}, fmt.Errorf("resolve %q: want a plain address", word)
		}
		n.Resolve = append(n.Resolve, a)
	}
	return NewNet(n)
}

// parseDest takes the one of name, suffix, ip and cidr that is there.
func parseDest(parts map[string]string) (Dest, error) {
	parsers := map[string]func(string) (Dest, error){
		"name": ParseDestName, "suffix": ParseDestSuffix, "ip": ParseDestIP, "cidr": ParseDestCIDR,
	}
	var d Dest
	for key, parse := range parsers {
		value, ok := parts[key]
		if !ok {
			continue
		}
		if d.Kind != NoDest {
			return Dest{}, errors.New("a net rule names exactly one of name, suffix, ip, cidr")
		}
		var err error
		if d, err = parse(value); err != nil {
			return Dest{}, err
		}
	}
	if depth, ok := parts["depth"]; ok {
		v, err := strconv.Atoi(depth)
		if err != nil || v < 1 {
			return Dest{}, fmt.Errorf("depth %q: want 1 to %d", depth, MaxDepth)
		}
		d.Depth = v
	}
	return d, nil
}

type netJSON struct {
	Name       string       `json:"name,omitempty"`
	Suffix     string       `json:"suffix,omitempty"`
	Depth      int          `json:"depth,omitempty"`
	IP         string       `json:"ip,omitempty"`
	CIDR       string       `json:"cidr,omitempty"`
	Ports      string       `json:"ports"`
	Transports []string     `json:"transports"`
	Methods    []string     `json:"methods,omitempty"`
	Paths      []string     `json:"paths,omitempty"`
	Slash      bool         `json:"encoded_slash,omitempty"`
	Ask        bool         `json:"ask,omitempty"`
	Inner      string       `json:"inner"`
	HTTP       bool         `json:"http,omitempty"`
	Resolve    []netip.Addr `json:"resolve,omitempty"`
}

// MarshalJSON is an object with the keys of a profile's rule; ports are in
// their text form.
func (n Net) MarshalJSON() ([]byte, error) {
	j := netJSON{Depth: n.Dest.Depth, Ports: n.Ports.String(), Transports: n.Transports.Words(), Methods: n.Methods,
		Paths: n.Paths, Slash: n.EncodedSlash, Ask: n.Ask, Inner: n.Inner.String(), HTTP: n.HTTP, Resolve: n.Resolve}
	key, value, _ := strings.Cut(n.Dest.String(), "=")
	value, _, _ = strings.Cut(value, " ")
	switch key {
	case "name":
		j.Name = value
	case "suffix":
		j.Suffix = value
	case "ip":
		j.IP = value
	case "cidr":
		j.CIDR = value
	}
	return json.Marshal(j)
}

// UnmarshalJSON takes what MarshalJSON gives, and nothing beside it.
func (n *Net) UnmarshalJSON(data []byte) error {
	var j netJSON
	if err := strictJSON(data, &j); err != nil {
		return fmt.Errorf("net right: %w", err)
	}
	parts := map[string]string{}
	for key, value := range map[string]string{"name": j.Name, "suffix": j.Suffix, "ip": j.IP, "cidr": j.CIDR} {
		if value != "" {
			parts[key] = value
		}
	}
	if j.Depth != 0 {
		parts["depth"] = strconv.Itoa(j.Depth)
	}
	v := Net{Methods: j.Methods, Paths: j.Paths, EncodedSlash: j.Slash, Ask: j.Ask, HTTP: j.HTTP, Resolve: j.Resolve}
	var errs [4]error
	v.Dest, errs[0] = parseDest(parts)
	v.Ports, errs[1] = ParsePorts(j.Ports)
	v.Transports, errs[2] = ParseTransports(j.Transports)
	v.Inner, errs[3] = ParseInner(j.Inner)
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("net right: %w", err)
	}
	v, err := NewNet(v)
	if err == nil {
		*n = v
	}
	return err
}
