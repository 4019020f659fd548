package right

import (
	"net/netip"
	"slices"
	"strings"
)

// This file finds one representative of each class of flows that two sets of
// rules can tell apart.

// fresh stands for a label or a method that no rule names, freshPath for a path
// or the rest of one, slashedPath for one with an encoded slash; none is valid in a rule.
const (
	fresh       = "~"
	freshPath   = ","
	slashedPath = ",%2f"
)

// netIndex finds the rules that may match a destination without reading them
// all: by name, else all literals.
type netIndex struct {
	byName   map[string]Nets // of Name and Suffix, by their name
	anyName  Nets
	literals Nets
}

func newNetIndex(ns Nets) netIndex {
	x := netIndex{byName: map[string]Nets{}}
	for _, n := range ns {
		switch n.Dest.Kind {
		case Name, Suffix:
			x.byName[n.Dest.Name] = append(x.byName[n.Dest.Name], n)
		case AnyName:
			x.anyName = append(x.anyName, n)
		case Literal:
			x.literals = append(x.literals, n)
		}
	}
	return x
}

// at gives the rules whose destination part matches.
func (x netIndex) at(f Flow) Nets {
	var out Nets
	keep := func(ns Nets) {
		for _, n := range ns {
			if n.matchesDest(f) {
				out = append(out, n)
			}
		}
	}
	if f.Addr.IsValid() {
		keep(x.literals)
		return out
	}
	for rest := f.Name; rest != ""; {
		keep(x.byName[rest])
		_, rest, _ = strings.Cut(rest, ".")
	}
	keep(x.anyName)
	return out
}

// destinations has one name or address of each class.
func destinations(sets ...Nets) []Flow {
	var out []Flow
	for _, name := range nameClasses(sets...) {
		out = append(out, Flow{Name: name})
	}
	for _, a := range addrClasses(sets...) {
		out = append(out, Flow{Addr: a})
	}
	return out
}

// nameClasses: every name that a rule mentions, each of its ancestors, and
// below each of those a fresh name at every depth at which some suffix ends.
// Two names that leave the tree of mentioned names at the same point, equally
// deep as far as any `depth` looks, match the same rules.
func nameClasses(sets ...Nets) []string {
	mentioned := map[string]bool{"": true} // "" is the root, for "*"
	bounds := map[string][]int{}           // suffix -> its depths
	for _, ns := range sets {
		for _, n := range ns {
			if n.Dest.Kind != Name && n.Dest.Kind != Suffix {
				continue
			}
			for rest := n.Dest.Name; rest != ""; _, rest, _ = strings.Cut(rest, ".") {
				mentioned[rest] = true
			}
			if n.Dest.Depth > 0 {
				bounds[n.Dest.Name] = append(bounds[n.Dest.Name], n.Dest.Depth)
			}
		}
	}
	var out []string
	for name := range mentioned {
		if name != "" {
			out = append(out, name)
		}
		for _, depth := range freshDepths(name, bounds) {
			below := strings.TrimSuffix(strings.Repeat(fresh+".", depth)+name, ".")
			out = append(out, below)
		}
	}
	slices.Sort(out) // for one answer of Wider
	return slices.Compact(out)
}

// freshDepths: 1, and the first depth below name past each bound of a suffix
// that holds it.
func freshDepths(name string, bounds map[string][]int) []int {
	depths := []int{1}
	above := 0
	for rest := name; rest != ""; above++ {
		for _, bound := range bounds[rest] {
			if d := bound - above + 1; d > 1 {
				depths = append(depths, d)
			}
		}
		_, rest, _ = strings.Cut(rest, ".")
	}
	return depths
}

// addrClasses: the first address of every stretch between the borders of all
// prefixes, and of the special ranges, which B106 makes borders too.
func addrClasses(sets ...Nets) []netip.Addr {
	prefixes := specialRanges()
	literal := false
	for _, ns := range sets {
		for _, n := range ns {
			if n.Dest.Kind == Literal {
				prefixes, literal = append(prefixes, n.Dest.Prefix), true
			}
		}
	}
	if !literal {
		return nil
	}
	out := []netip.Addr{netip.AddrFrom4([4]byte{}), netip.IPv6Unspecified()}
	for _, p := range prefixes {
		out = append(out, p.Addr())
		if after := lastAddr(p).Next(); after.IsValid() {
			out = append(out, after)
		}
	}
	return sortedSet(out, netip.Addr.Compare)
}

func lastAddr(p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(raw) // 4 or 16 bytes, from AsSlice
	return a
}

// portCuts: the first port of every stretch in which no set changes.
func portCuts(sets ...Nets) []uint16 {
	var out []uint16
	for _, ns := range sets {
		for _, n := range ns {
			for _, r := range n.Ports {
				out = append(out, r.First)
				if r.Last < 65535 {
					out = append(out, r.Last+1)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

type inside struct{ method, path string }

// requestClasses: a flow in which no request is seen, and, if any rule looks at
// requests, one for each method and path that is told apart.
func requestClasses(sets ...Nets) []inside {
	methods, paths := []string{fresh}, []string{freshPath}
	for _, ns := range sets {
		for _, n := range ns {
			methods = append(methods, n.Methods...)
			for _, p := range n.Paths {
				if dir, prefix := strings.CutSuffix(p, "*"); prefix {
					p = dir + freshPath
					paths = append(paths, dir+slashedPath)
				}
				paths = append(paths, p)
			}
		}
	}
	out := []inside{{}}
	if len(methods)+len(paths) == 2 {
		return out
	}
	for _, m := range sortedSet(methods, strings.Compare) {
		for _, p := range sortedSet(paths, strings.Compare) {
			out = append(out, inside{m, p})
		}
	}
	return out
}
