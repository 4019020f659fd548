package profile

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

// Default is the profile of a user who names none (L3).
const Default = "coding-agent"

//go:embed shipped/*.yaml
var shipped embed.FS

// Names are the shipped profiles, sorted.
func Names() []string {
	entries, _ := shipped.ReadDir("shipped") // of an embedded directory
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(out)
	return out
}

// Shipped is a profile that Skep brings, as if its file stood at the place:
// `path: .` is the current directory of who runs it.
func Shipped(name string, at Place) (*Profile, error) {
	src, err := ShippedSource(name)
	if err != nil {
		return nil, err
	}
	p, faults := ParseAt(name, at, src)
	return p, faults.Err()
}

// ShippedSource is the YAML text of a shipped profile.
func ShippedSource(name string) ([]byte, error) {
	src, err := shipped.ReadFile("shipped/" + name + ".yaml")
	if err != nil || strings.Contains(name, "/") {
		return nil, fmt.Errorf("no profile %q is shipped; there are: %s", name, strings.Join(Names(), ", "))
	}
	return src, nil
}
