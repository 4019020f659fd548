package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/right/declared"
	"skep.dev/skep/internal/secret/listed"
	"skep.dev/skep/internal/strict"
)

// Faults is all that is wrong with a profile.
type Faults = strict.Faults

// Profile is a profile without fault. Its lists are in the order of the file.
type Profile struct {
	File  string // as the caller named it
	Dir   string // absolute: what relative paths were resolved against
	Paths []PathRule
	Net   []declared.NetRule
	// NoDesk takes policy.skep.alt away, where a cell reads what it was refused (B230).
	NoDesk bool
	// AskUnlisted puts what no rule matches to a person (B85).
	AskUnlisted bool
	Resolved    []declared.Range // B85: private addresses that allowed names may have
	Secrets     []listed.Secret
	Model       right.Model
	Budget      Budget
	Home        string // "": a fresh and empty HOME; else the name of a kept one
	Env         Env
	Raw         bool // terminal: raw
	Agent       AgentSocket

	lines  map[string]int // of the top-level keys and the budget's
	source []string       // the text, for the faults of Narrow
	base   *Profile       // what Narrow narrowed
}

// PathRule is one entry of `paths:`.
type PathRule struct {
	right.Path
	File string
	Line int
}

// Budget holds the limits and which of them may go unenforced where the host
// cannot (L2b, L13).
type Budget struct {
	right.Budget
	IfAvailable []string // keys such as "memory", sorted
}

// Optional tells whether a limit is marked `if_available: true`.
func (b Budget) Optional(key string) bool { return slices.Contains(b.IfAvailable, key) }

// Env is the agent's environment beside what Skep sets (L16).
type Env struct {
	Pass []string // names taken from the caller's environment, sorted
	Set  map[string]string
}

// Line is where a top-level key, or "budget.memory", stands; 0 if absent.
func (p *Profile) Line(key string) int { return p.lines[key] }

// Base is the profile that this one narrows, or nil. Narrow has compared paths as
// they are written; pathplan compares again once symlinks are resolved.
func (p *Profile) Base() *Profile { return p.base }

// PathRights are the path rules as right values, in the order of the file.
// Symlinks are not resolved yet: pathplan does that, with the lines.
func (p *Profile) PathRights() []right.Path {
	out := make([]right.Path, len(p.Paths))
	for i, r := range p.Paths {
		out[i] = r.Path
	}
	return out
}

// NetRights are the net rules as one set.
func (p *Profile) NetRights() right.Nets {
	var out right.Nets
	for _, r := range p.Net {
		out = append(out, r.Net)
	}
	return out
}

// Digest is the SHA-256 of [Profile.Effective] in hex. A confirmation of a
// profile is bound to it (L3).
func (p *Profile) Digest() string {
	sum := sha256.Sum256([]byte(p.Effective()))
	return hex.EncodeToString(sum[:])
}

// FaultAt is a fault that is found after parsing, at a line of the profile.
func (p *Profile) FaultAt(line int, text, message, fix string) strict.Fault {
	source := ""
	if line > 0 && line <= len(p.source) {
		source = p.source[line-1]
	}
	column := 1
	if i := strings.Index(source, text); i >= 0 && text != "" {
		column = utf8.RuneCountInString(source[:i]) + 1
	} else {
		column += len(source) - len(strings.TrimLeft(source, " -"))
		text = ""
	}
	return strict.Fault{File: p.File, Pos: strict.Pos{Line: line, Column: column}, Text: text,
		Message: message, Fix: fix, Source: source}
}
