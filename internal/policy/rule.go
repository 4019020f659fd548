package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy/address"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/right/request"
)

// InnerCheck says what the agent's first bytes must be (B110).
type InnerCheck uint8

// InnerDefault is check for names and off for literals.
const (
	InnerDefault InnerCheck = iota
	InnerOff
	InnerName // "check": TLS must name the destination, other protocols pass
	InnerTLS  // TLS that names the destination, and nothing else
)

// AnyName is the Name of a rule that matches every name and no literal (B81).
const AnyName = "*"

// Rule allows, or in a ceiling's Deny forbids, one kind of destination. Exactly
// one of Name, Suffix, IP and CIDR is set (B80).
type Rule struct {
	ID     string
	Line   int    // in its file, 0 if it has none
	Name   string // normalised, or AnyName
	Suffix string // "x.test" for "*.x.test": every depth below, never itself
	Depth  int    // how many labels below Suffix; 0 is any
	IP     netip.Addr
	CIDR   netip.Prefix

	Ports    right.Ports // nil matches no port
	TCP, UDP bool
	Inner    InnerCheck
	HTTP     bool         // plain HTTP on a port other than 80 (B112)
	Resolve  []netip.Addr // what an exact name resolves to, instead of asking (B84)

	Ask  bool          // a person is asked (B140)
	Hold time.Duration // how long a flow waits for the answer; 0: it is refused at once

	Methods, Paths []string // of the requests that it admits; none: every one (B83)
	EncodedSlash   bool     // Paths match paths with an encoded slash, too
	NoECH          bool     // a TLS hello that may hide another name is refused (B114)
	Correlate      bool     // requests that can be read carry the flow's id (B84)
}

// limits reports whether the rule admits only some requests.
func (r *Rule) limits() bool { return len(r.Methods)+len(r.Paths) > 0 }

// Range is a prefix with ports: an exception for resolved addresses (B85) or an
// opening of the floor (B105).
type Range struct {
	CIDR  netip.Prefix
	Ports right.Ports
}

func (g Range) covers(a netip.Addr, port uint16) bool {
	return g.CIDR.Contains(a) && g.Ports.Has(port)
}

// Check says what is wrong with a rule. The profile has refused the same faults
// with line and column; this is for a rule that arrives from another program.
func (r Rule) Check() error {
	forms := 0
	for _, set := range []bool{r.Name != "", r.Suffix != "", r.IP.IsValid(), r.CIDR.IsValid()} {
		if set {
			forms++
		}
	}
	if forms != 1 {
		return fmt.Errorf("rule %q names %d of name, suffix, ip and cidr; it needs exactly one", r.ID, forms)
	}
	for _, host := range []string{r.Name, r.Suffix} {
		if host == "" || host == AnyName {
			continue
		}
		if plain, err := name.Host(host); err != nil || plain != host {
			return fmt.Errorf("rule %q: %q is not a host name in its normal form", r.ID, host)
		}
	}
	switch {
	case r.Suffix == AnyName:
		return fmt.Errorf("rule %q: the suffix is empty", r.ID)
	case r.Depth != 0 && r.Suffix == "" || r.Depth < 0:
		return fmt.Errorf("rule %q: depth belongs to a suffix", r.ID)
	case len(r.Resolve) > 0 && (r.Name == "" || r.Name == AnyName):
		return fmt.Errorf("rule %q: resolve belongs to an exact name", r.ID)
	case r.IP.IsValid() && name.InPools(r.IP), r.CIDR.IsValid() && overlapsPools(r.CIDR):
		return fmt.Errorf("rule %q lies in the cell's own address pools", r.ID)
	case r.IP.Zone() != "" || r.IP.Is4In6() || r.CIDR.Addr().Is4In6() || r.CIDR != r.CIDR.Masked():
		return fmt.Errorf("rule %q: the address is not in its plain form", r.ID)
	case r.Inner > InnerTLS:
		return fmt.Errorf("rule %q: unknown inner check %d", r.ID, r.Inner)
	case r.Inner == InnerName && r.isLiteral() && !r.HTTP:
		return fmt.Errorf("rule %q: an inner check of a literal needs http, since it has no name", r.ID)
	case r.Hold < 0 || r.Hold > MaxHold || r.Hold > 0 && !r.Ask:
		return fmt.Errorf("rule %q: a hold belongs to ask and lasts at most %s", r.ID, MaxHold)
	case r.NoECH && (r.Inner == InnerOff || r.Inner == InnerDefault && r.isLiteral()):
		return fmt.Errorf("rule %q: without an inner check no hello is read", r.ID)
	case r.Inner == InnerOff && r.HTTP:
		return fmt.Errorf("rule %q: http and no inner check contradict each other", r.ID)
	case r.limits() && (r.Inner == InnerOff || r.Inner == InnerTLS || r.UDP):
		return fmt.Errorf("rule %q: methods and paths need requests that can be read", r.ID)
	}
	if err := request.Check(r.Methods, r.Paths, r.EncodedSlash); err != nil {
		return fmt.Errorf("rule %q: %w", r.ID, err)
	}
	return nil
}

// A prefix wider than a pool only overlaps it; B106 keeps it from admitting
// pool addresses, so that 0.0.0.0/0 stays a valid rule.
func overlapsPools(p netip.Prefix) bool {
	for _, pool := range []netip.Prefix{name.Pool4(), name.Pool6()} {
		if pool.Overlaps(p) && p.Bits() >= pool.Bits() {
			return true
		}
	}
	return false
}

// names reports whether the rule's destination is the request's, port and
// transport aside (B81, B106).
func (r *Rule) names(q flow.Request, t address.Tables) bool {
	if q.Name != "" {
		switch {
		case r.Name != "":
			return r.Name == AnyName || r.Name == q.Name
		case r.Suffix != "":
			depth, below := name.Below(q.Name, r.Suffix)
			return below && (r.Depth == 0 || depth <= r.Depth)
		}
		return false
	}
	return r.literal(q.Addr, t)
}

// literal reports whether an ip or cidr rule admits an address. A prefix that is
// not wholly inside one special range admits no special address (B106).
func (r *Rule) literal(a netip.Addr, t address.Tables) bool {
	if r.IP.IsValid() {
		return r.IP == a
	}
	if !r.CIDR.IsValid() || !r.CIDR.Contains(a) {
		return false
	}
	if _, isSpecial := t.Special(a); !isSpecial {
		return true
	}
	_, inOne := t.WithinSpecial(r.CIDR)
	return inOne
}

func (r *Rule) isLiteral() bool { return r.IP.IsValid() || r.CIDR.IsValid() }

func (r *Rule) carries(p flow.Transport) bool {
	return p == flow.TCP && r.TCP || p == flow.UDP && r.UDP
}

// narrower orders rules for one destination, the narrowest first: exact, longer
// suffix, "*"; ip, longer prefix (B80).
func narrower(a, b *Rule) int {
	return cmp.Or(cmp.Compare(b.width(), a.width()), cmp.Compare(a.ID, b.ID))
}

func (r *Rule) width() int {
	switch {
	case r.Name == AnyName:
		return 0
	case r.Suffix != "":
		return len(r.Suffix)
	case r.CIDR.IsValid():
		return r.CIDR.Bits()
	}
	return 1 << 20
}

func (r *Rule) resolvesTo(a netip.Addr) bool { return slices.Contains(r.Resolve, a) }
