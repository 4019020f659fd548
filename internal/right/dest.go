package right

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"skep.dev/skep/internal/name"
)

// DestKind is how a net rule names its destinations.
type DestKind uint8

// The kinds. The zero kind matches nothing.
const (
	NoDest  DestKind = iota
	Name             // one name exactly
	Suffix           // every name below one, never that one itself (B81)
	AnyName          // "*": every name, never a literal address
	Literal          // addresses, by ip or cidr; never a name
)

// MaxDepth bounds `depth` of a suffix.
const MaxDepth = 32

// Dest is the destination part of a net rule. Dests are comparable.
type Dest struct {
	Kind   DestKind
	Name   string       // Name, and Suffix without "*."; an A-label form
	Depth  int          // Suffix: at most so many labels below; 0 is every depth
	Prefix netip.Prefix // Literal; an ip is a prefix of full length
}

// ParseDestName takes the value of `name`: a name, "*.x" or "*" (B81).
func ParseDestName(s string) (Dest, error) {
	switch {
	case s == "*":
		return Dest{Kind: AnyName}, nil
	case strings.HasPrefix(s, "*."):
		return ParseDestSuffix(s)
	case strings.Contains(s, "*"):
		return Dest{}, fmt.Errorf("%q: a * stands alone (every name) or first in \"*.x\" (every name below x)", s)
	}
	host, err := ruleHost(s)
	return Dest{Kind: Name, Name: host}, err
}

// ParseDestSuffix takes the value of `suffix`: "*.x".
func ParseDestSuffix(s string) (Dest, error) {
	rest, ok := strings.CutPrefix(s, "*.")
	if !ok || strings.Contains(rest, "*") {
		return Dest{}, fmt.Errorf("%q: a suffix is \"*.x\", which matches every name below x, never x itself", s)
	}
	host, err := ruleHost(rest)
	return Dest{Kind: Suffix, Name: host}, err
}

// ruleHost normalises a name and refuses those that no rule can open.
func ruleHost(s string) (string, error) {
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil || s != "" && name.Numeric(s) {
		return "", fmt.Errorf("%q is an address; a literal address is matched by ip or cidr", s)
	}
	host, err := name.Host(s)
	switch {
	case err != nil:
		return "", err
	case name.UnderAlt(host):
		return "", fmt.Errorf("%q: names under alt are Skep's own and no net rule opens them (a model right opens mesh.skep.alt)", s)
	case name.Loopback(host):
		return "", fmt.Errorf("%q is the cell's own loopback, which needs no rule", s)
	}
	return host, nil
}

// ParseDestIP takes the value of `ip`.
func ParseDestIP(s string) (Dest, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return Dest{}, fmt.Errorf("%q is not an address", s)
	}
	if a.Zone() != "" {
		return Dest{}, fmt.Errorf("%q: an address with a zone is never allowed", s)
	}
	a = a.Unmap()
	if name.InPools(a) {
		return Dest{}, ownPools(s)
	}
	return Dest{Kind: Literal, Prefix: netip.PrefixFrom(a, a.BitLen())}, nil
}

// ownPools refuses what only stands for names inside a cell (B55, B56).
func ownPools(s string) error {
	return fmt.Errorf("%q lies in the cell's own address pools; a real destination there is a name with resolve", s)
}

// ParseDestCIDR takes the value of `cidr`.
func ParseDestCIDR(s string) (Dest, error) {
	p, err := ParseCIDR(s)
	for _, pool := range []netip.Prefix{name.Pool4(), name.Pool6()} {
		if err == nil && pool.Contains(p.Addr()) && p.Bits() >= pool.Bits() {
			err = ownPools(s)
		}
	}
	return Dest{Kind: Literal, Prefix: p}, err
}

// ParseCIDR takes a prefix without host bits; an IPv4-mapped one becomes IPv4.
func ParseCIDR(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a cidr such as 10.0.0.0/8", s)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%q is wider than the IPv4-mapped addresses", s)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has host bits set: write %s, or ip: %s", s, p.Masked(), p.Addr())
	}
	return p, nil
}

// MatchesName tells whether host, in A-label form, is among the destinations.
func (d Dest) MatchesName(host string) bool {
	switch d.Kind {
	case Name:
		return host == d.Name
	case AnyName:
		return host != ""
	case Suffix:
		below, ok := strings.CutSuffix(host, "."+d.Name)
		return ok && below != "" && (d.Depth == 0 || strings.Count(below, ".")+1 <= d.Depth)
	}
	return false
}

// MatchesAddr tells whether a literal address is among the destinations. A
// prefix that is not wholly inside one special-purpose range admits no special
// address (B106), so that 0.0.0.0/0 never means 10.0.0.1.
func (d Dest) MatchesAddr(a netip.Addr) bool {
	if d.Kind != Literal || !d.Prefix.Contains(a) {
		return false
	}
	s, special := Special(a)
	return !special || s.Bits() <= d.Prefix.Bits() && s.Contains(d.Prefix.Addr())
}

// Narrowness orders the Dests that match one destination: the greater is the
// narrower (B80: exact, longer suffix, *; longer prefix).
func (d Dest) Narrowness() int {
	switch d.Kind {
	case Name:
		return 1000
	case Suffix:
		return 1 + strings.Count(d.Name, ".") + 1
	case AnyName:
		return 1
	case Literal:
		return 1 + d.Prefix.Bits()
	}
	return 0
}

// String is the part of a rule's canonical text: "name=x", "suffix=*.x
// depth=2", "name=*", "ip=192.0.2.1", "cidr=10.0.0.0/8".
func (d Dest) String() string {
	switch d.Kind {
	case Name:
		return "name=" + d.Name
	case AnyName:
		return "name=*"
	case Suffix:
		if d.Depth > 0 {
			return "suffix=*." + d.Name + " depth=" + strconv.Itoa(d.Depth)
		}
		return "suffix=*." + d.Name
	case Literal:
		if d.Prefix.IsSingleIP() {
			return "ip=" + d.Prefix.Addr().String()
		}
		return "cidr=" + d.Prefix.String()
	}
	return ""
}

// Explain says in words what the destination part matches (N27, B86).
func (d Dest) Explain() string {
	switch d.Kind {
	case Name:
		return "the name " + d.Name + " only"
	case AnyName:
		return "every name, never a literal address"
	case Suffix:
		if d.Depth > 0 {
			return fmt.Sprintf("every name at most %d label%s deep below %s, never %s itself",
				d.Depth, map[bool]string{false: "s"}[d.Depth == 1], d.Name, d.Name)
		}
		return "every name below " + d.Name + ", never " + d.Name + " itself"
	case Literal:
		if d.Prefix.IsSingleIP() {
			return "the literal address " + d.Prefix.Addr().String() + ", never a name"
		}
		return "literal addresses in " + d.Prefix.String() + ", never a name"
	}
	return "nothing"
}
