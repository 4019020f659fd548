package right

import (
	"fmt"

	"skep.dev/skep/internal/name"
)

// Secret is a value that the box may fill in for a cell, which never sees it.
// Without hosts or placements it is of no use, and grants nothing.
type Secret struct {
	Name       string   `json:"name,omitempty"`
	Hosts      []string `json:"hosts,omitempty"`      // exact names
	Placements []string `json:"placements,omitempty"` // "bearer", "basic", "header:NAME", ... (B121)
}

// NewSecret makes the canonical value.
func NewSecret(s Secret) (Secret, error) {
	if s.Name == "" && len(s.Hosts)+len(s.Placements) == 0 {
		return Secret{}, nil
	}
	if err := checkWord("secret", s.Name); err != nil {
		return Secret{}, err
	}
	hosts := make([]string, len(s.Hosts))
	for i, h := range s.Hosts {
		var err error
		if hosts[i], err = name.Host(h); err != nil {
			return Secret{}, fmt.Errorf("secret %s: %w", s.Name, err)
		}
	}
	var err error
	if s.Hosts, err = canonicalWords("host", hosts); err != nil {
		return Secret{}, err
	}
	s.Placements, err = canonicalWords("placement", s.Placements)
	return s, err
}

// Covers: the same name, hosts and placements a subset.
func (s Secret) Covers(child Secret) bool {
	if child.Name == "" {
		return true
	}
	return child.Name == s.Name && subset(child.Hosts, s.Hosts) && subset(child.Placements, s.Placements)
}

// String is the canonical text: "secret=gh hosts=github.com placements=basic,bearer".
func (s Secret) String() string {
	if s.Name == "" {
		return ""
	}
	var p pairs
	p.add("secret", s.Name)
	p.list("hosts", s.Hosts)
	p.list("placements", s.Placements)
	return p.b.String()
}

// ParseSecret takes what String gives.
func ParseSecret(text string) (Secret, error) {
	parts, err := parsePairs(text, "secret", "hosts", "placements")
	var s Secret
	if err == nil {
		s, err = NewSecret(Secret{parts["secret"], pairList(parts, "hosts"), pairList(parts, "placements")})
	}
	return roundTrip("secret", text, s, err)
}

// UnmarshalJSON takes what encoding/json makes of the struct, and nothing beside it.
func (s *Secret) UnmarshalJSON(data []byte) error {
	type plain Secret
	var j plain
	if err := strictJSON(data, &j); err != nil {
		return fmt.Errorf("secret right: %w", err)
	}
	v, err := NewSecret(Secret(j))
	if err == nil {
		*s = v
	}
	return err
}
