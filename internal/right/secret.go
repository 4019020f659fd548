package right

import (
	"fmt"
	"strings"

	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/right/request"
)

// Secret is a value that the box may fill in for a cell, which never sees it.
// Without hosts or placements it is of no use, and grants nothing.
type Secret struct {
	Name       string   `json:"name,omitempty"`
	Hosts      []string `json:"hosts,omitempty"`      // exact names
	Ports      Ports    `json:"ports,omitempty"`      // none: 443
	Path       string   `json:"path,omitempty"`       // the whole of a request's, or its beginning up to a slash; none: all
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
	if len(s.Ports) == 0 {
		s.Ports = Ports{{First: 443, Last: 443}}
	}
	if s.Ports, err = NewPorts(s.Ports...); err != nil {
		return Secret{}, fmt.Errorf("secret %s: %w", s.Name, err)
	}
	if s.Path == "" {
		s.Path = "/"
	}
	if err := request.Check(nil, []string{s.Path}, false); err != nil || strings.Contains(s.Path, "*") {
		return Secret{}, fmt.Errorf("secret %s: path %q is not the beginning of a path", s.Name, s.Path)
	}
	s.Placements, err = canonicalWords("placement", s.Placements)
	return s, err
}

// below tells whether child is path or what a path that begins with it can be.
func below(path, child string) bool {
	rest, ok := strings.CutPrefix(child, path)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(path, "/"))
}

// Covers: the same name; hosts, ports and placements a subset, the path below.
func (s Secret) Covers(child Secret) bool {
	if child.Name == "" {
		return true
	}
	return child.Name == s.Name && subset(child.Hosts, s.Hosts) && subset(child.Placements, s.Placements) && s.Ports.Covers(child.Ports) && below(s.Path, child.Path)
}

// String is the canonical text: "secret=gh hosts=github.com
// ports=443 path=/ placements=basic,bearer".
func (s Secret) String() string {
	if s.Name == "" {
		return ""
	}
	var p pairs
	p.add("secret", s.Name)
	p.list("hosts", s.Hosts)
	p.add("ports", s.Ports.String())
	p.add("path", s.Path)
	p.list("placements", s.Placements)
	return p.b.String()
}

// ParseSecret takes what String gives.
func ParseSecret(text string) (Secret, error) {
	parts, err := parsePairs(text, "secret", "hosts", "ports", "path", "placements")
	s := Secret{Name: parts["secret"], Hosts: pairList(parts, "hosts"), Path: parts["path"], Placements: pairList(parts, "placements")}
	if err == nil && parts["ports"] != "" {
		s.Ports, err = ParsePorts(parts["ports"])
	}
	if err == nil {
		s, err = NewSecret(s)
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
