package right

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Access is what may be done with a path: a set of Read, Write and Execute.
// The zero Access hides it.
type Access uint8

// The members of an Access.
const (
	Read Access = 1 << iota
	Write
	Execute
)

// String is "rwx" with what is missing left out, and "-" for none.
func (a Access) String() string {
	s := ""
	for i, letter := range []string{"r", "w", "x"} {
		if a&(1<<i) != 0 {
			s += letter
		}
	}
	return cmp.Or(s, "-")
}

// ParseAccess takes what String gives.
func ParseAccess(s string) (Access, error) {
	for a := range Read | Write | Execute + 1 {
		if a.String() == s {
			return a, nil
		}
	}
	return 0, fmt.Errorf("access %q: want some of r, w, x in this order, or -", s)
}

// Path says what may be done with a path and everything below it, as far as no
// narrower Path says otherwise.
type Path struct {
	At     string // absolute, clean, without symlinks
	Access Access
}

// NewPath checks that at is absolute and clean and can be shown in one line.
func NewPath(at string, access Access) (Path, error) {
	switch {
	case !strings.HasPrefix(at, "/"):
		return Path{}, fmt.Errorf("path %q: want an absolute path", at)
	case path.Clean(at) != at:
		return Path{}, fmt.Errorf("path %q: not clean, want %q", at, path.Clean(at))
	case !utf8.ValidString(at) || strings.ContainsFunc(at, unicode.IsControl):
		return Path{}, fmt.Errorf("path %q: control characters and invalid UTF-8 cannot be granted by name", at)
	case access > Read|Write|Execute:
		return Path{}, fmt.Errorf("path %q: unknown access bits %#x", at, uint8(access))
	}
	return Path{At: at, Access: access}, nil
}

// String is the canonical text: access, a space, the path to the end.
func (p Path) String() string { return p.Access.String() + " " + p.At }

// ParsePath takes what String gives.
func ParsePath(text string) (Path, error) {
	access, at, _ := strings.Cut(text, " ")
	a, err := ParseAccess(access)
	if err != nil {
		return Path{}, fmt.Errorf("parse path right %q: %w", text, err)
	}
	p, err := NewPath(at, a)
	return roundTrip("path", text, p, err)
}

type pathJSON struct {
	Path   string `json:"path"`
	Access string `json:"access"`
}

// MarshalJSON is {"path": "/usr", "access": "rx"}.
func (p Path) MarshalJSON() ([]byte, error) {
	return json.Marshal(pathJSON{p.At, p.Access.String()})
}

// UnmarshalJSON takes what MarshalJSON gives, and nothing beside it.
func (p *Path) UnmarshalJSON(data []byte) error {
	var j pathJSON
	if err := strictJSON(data, &j); err != nil {
		return fmt.Errorf("path right: %w", err)
	}
	v, err := ParsePath(j.Access + " " + j.Path)
	if err == nil {
		*p = v
	}
	return err
}

// Covers is Paths.Covers for one rule on each side.
func (p Path) Covers(child Path) bool { return Paths{p}.Covers(Paths{child}) }

// Paths is a set of path rules. The nil set grants nothing.
type Paths []Path

// NewPaths makes the canonical set: sorted, without rules that change nothing.
// Two rules for one path are an error, since either could be meant.
func NewPaths(rules ...Path) (Paths, error) {
	sorted := slices.Clone(rules)
	slices.SortFunc(sorted, func(a, b Path) int { return cmp.Compare(a.At, b.At) })
	var out Paths
	for i, r := range sorted {
		if i > 0 && sorted[i-1].At == r.At {
			return nil, fmt.Errorf("path %q is ruled twice: %s and %s", r.At, sorted[i-1].Access, r.Access)
		}
		// A parent sorts before what it contains, so that the wider rules are
		// already in out.
		if out.At(r.At) != r.Access {
			out = append(out, r)
		}
	}
	return out, nil
}

// At is what the set allows for a path: the narrowest rule that contains it
// decides, and without one nothing is allowed. name must be clean.
func (ps Paths) At(name string) Access {
	rule, _ := ps.Rule(name)
	return rule.Access
}

// Rule is the narrowest rule that contains the path.
func (ps Paths) Rule(name string) (Path, bool) {
	best, found := Path{}, false
	for _, p := range ps {
		if Contains(p.At, name) && (!found || len(p.At) > len(best.At)) {
			best, found = p, true
		}
	}
	return best, found
}

// Covers tells whether every access that child allows is allowed by ps, on
// every path there can be. What either set allows changes only at its own
// rules, so comparing at the rules of both is comparing everywhere.
func (ps Paths) Covers(child Paths) bool {
	_, wider := ps.Wider(child)
	return !wider
}

// Wider finds the first path (in the order of the rules) at which child
// allows what ps does not, with child's access there.
func (ps Paths) Wider(child Paths) (Path, bool) {
	for _, set := range []Paths{child, ps} {
		for _, p := range set {
			if a := child.At(p.At); a&^ps.At(p.At) != 0 {
				return Path{At: p.At, Access: a}, true
			}
		}
	}
	return Path{}, false
}

// Contains tells whether name is dir or lies below it; both are clean and
// absolute.
func Contains(dir, name string) bool {
	return dir == name || dir == "/" || strings.HasPrefix(name, dir) && name[len(dir)] == '/'
}
