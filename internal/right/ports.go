package right

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PortRange is First to Last, both included.
type PortRange struct{ First, Last uint16 }

// Ports is a set of ports, canonical: ascending, joined where they touch, but
// the mail ports stand alone. The nil set matches nothing.
type Ports []PortRange

// IsMail tells the ports of mail delivery, 25, 465 and 587, which are only in a
// set that names each by itself (B82): no range includes them by accident.
func IsMail(port uint16) bool { return port == 25 || port == 465 || port == 587 }

// NewPorts makes the canonical set of some ranges. A range of one port names
// that port; a longer one leaves the mail ports out.
func NewPorts(ranges ...PortRange) (Ports, error) {
	var parts Ports
	for _, r := range ranges {
		if r.First == 0 || r.First > r.Last {
			return nil, fmt.Errorf("ports %d-%d: want 1 to 65535, the lower one first", r.First, r.Last)
		}
		if r.First == r.Last {
			parts = append(parts, r)
			continue
		}
		parts = append(parts, withoutMail(r)...)
	}
	slices.SortFunc(parts, func(a, b PortRange) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	var out Ports
	for _, r := range parts {
		if n := len(out); n > 0 && joins(out[n-1], r) {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// joins: overlapping or touching, and neither a mail port (those may only
// repeat themselves).
func joins(a, b PortRange) bool {
	if IsMail(a.Last) || IsMail(b.First) {
		return a == b
	}
	return uint32(b.First) <= uint32(a.Last)+1
}

func withoutMail(r PortRange) Ports {
	var out Ports
	next := uint32(r.First)
	for _, mail := range []uint32{25, 465, 587} {
		if mail < next || mail > uint32(r.Last) {
			continue
		}
		if mail > next {
			out = append(out, PortRange{uint16(next), uint16(mail - 1)})
		}
		next = mail + 1
	}
	if next <= uint32(r.Last) {
		out = append(out, PortRange{uint16(next), r.Last})
	}
	return out
}

// Has tells whether the port is in the set.
func (ps Ports) Has(port uint16) bool {
	for _, r := range ps {
		if r.First <= port && port <= r.Last {
			return true
		}
	}
	return false
}

// Covers tells whether every port of child is in the set.
func (ps Ports) Covers(child Ports) bool {
	for _, p := range portCuts(Nets{{Ports: ps}, {Ports: child}}) {
		if child.Has(p) && !ps.Has(p) {
			return false
		}
	}
	return true
}

// String is "443,8000-8010".
func (ps Ports) String() string {
	parts := make([]string, len(ps))
	for i, r := range ps {
		parts[i] = strconv.Itoa(int(r.First))
		if r.Last != r.First {
			parts[i] += "-" + strconv.Itoa(int(r.Last))
		}
	}
	return strings.Join(parts, ",")
}

// ParsePortRange takes "443" or "8000-8010".
func ParsePortRange(s string) (PortRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	a, err := parsePort(first)
	if err != nil {
		return PortRange{}, err
	}
	if !isRange {
		return PortRange{a, a}, nil
	}
	b, err := parsePort(last)
	if err != nil {
		return PortRange{}, err
	}
	// a-a would be a second way to write a, and a hidden way to name a mail port.
	if a >= b {
		return PortRange{}, fmt.Errorf("port range %q: the first must be below the last", s)
	}
	return PortRange{a, b}, nil
}

// ParsePorts takes what String gives.
func ParsePorts(s string) (Ports, error) {
	var ranges []PortRange
	for part := range strings.SplitSeq(s, ",") {
		r, err := ParsePortRange(part)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return NewPorts(ranges...)
}

func parsePort(s string) (uint16, error) {
	v, err := strconv.ParseUint(s, 10, 16)
	if err != nil || v == 0 || strconv.FormatUint(v, 10) != s {
		return 0, fmt.Errorf("port %q: want a number from 1 to 65535", s)
	}
	return uint16(v), nil
}

// AllHTTP tells whether plain HTTP is what is spoken on all of the ports (B112).
func AllHTTP(ports Ports) bool { return len(ports) == 1 && ports[0] == PortRange{First: 80, Last: 80} }
