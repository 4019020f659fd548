// Package refused tells a person what a cell was refused, each with its reason and with
// what would allow it (boundary.md, B89).
//
// Its laws:
//   - It reads entries of the ledger; each text of them is escaped before it is shown.
//   - As a profile it prints rules alone that read as one line of a profile: the narrowest
//     ones, each once. What the operator does not permit is none.
package refused

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/story"
)

// List is what was refused, in the order of its first attempts. The zero one is empty.
type List struct {
	all []*Refusal
}

// Refusal is one destination that was refused for one reason.
type Refusal struct {
	Where     string `json:"destination"`
	Transport string `json:"transport"`
	Reason    string `json:"reason"`
	AllowWith string `json:"allow_with,omitempty"`
	Count     uint64 `json:"count"`
}

// Add takes an entry; what is no refusal of a flow is passed over.
func (l *List) Add(e *entry.Entry) {
	body, err := e.Decode()
	if err != nil {
		return
	}
	var f kind.Flow
	switch b := body.(type) {
	case *kind.FlowDenied:
		f = kind.Flow(*b)
	case *kind.FlowOutcome:
		f = kind.Flow(*b)
	}
	switch f.Reason {
	case "", flow.Revoked.Token(), flow.IdleTimeout.Token():
		return
	}
	one := Refusal{Where: string(f.Destination), Transport: f.Transport, Reason: f.Reason, Count: max(f.Count, 1), AllowWith: f.AllowWith}
	if one.AllowWith == "" {
		one.AllowWith = story.Remedy(body)
	}
	if f.Port != 0 {
		one.Where = net.JoinHostPort(one.Where, strconv.Itoa(int(f.Port)))
	}
	for _, have := range l.all {
		if have.Where == one.Where && have.Transport == one.Transport && have.Reason == one.Reason {
			have.Count += one.Count
			return
		}
	}
	l.all = append(l.all, &one)
}

// All is the list.
func (l *List) All() []*Refusal { return l.all }

// Lines are for a person: at most so many refusals, 0 for all, and how many more there are.
func (l *List) Lines(most int) (lines []string, more int) {
	shown := l.all
	if most > 0 && len(shown) > most {
		shown, more = shown[:most], len(shown)-most
	}
	for _, r := range shown {
		line := fmt.Sprintf("refused: %s by %s (%s)", escape.Line(r.Where), escape.Line(r.Transport), escape.Line(r.Reason))
		if r.Count > 1 {
			line += fmt.Sprintf(", %d times", r.Count)
		}
		lines = append(lines, line)
		if r.AllowWith != "" {
			lines = append(lines, "    allow with: "+escape.Line(r.AllowWith))
		}
	}
	return lines, more
}

// Rules are the lines to be pasted below `net:` of a profile.
func (l *List) Rules() (rules []string) {
	for _, r := range l.all {
		rule := strings.HasPrefix(r.AllowWith, "- {") && strings.HasSuffix(r.AllowWith, "}") && escape.Line(r.AllowWith) == r.AllowWith
		if rule && !slices.Contains(rules, r.AllowWith) {
			rules = append(rules, r.AllowWith)
		}
	}
	slices.Sort(rules)
	return rules
}
