// Package story tells ledger entries to a person: one line an event (D14).
//
// Its laws:
//   - Every text that an entry holds goes through one function that escapes it
//     ([say]), whoever wrote it: a cell can put no control, bidi or invalid byte
//     on the terminal, and no second line (L18a).
//   - Every kind has a sentence; a body that cannot be read says so and hides
//     nothing else.
//   - A refusal says why, and what would allow it.
package story

import (
	"fmt"
	"strings"
	"time"

	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/jcs"
	"skep.dev/skep/internal/ledger/kind"
)

// Teller turns entries into lines. The zero value tells in UTC without colour.
type Teller struct {
	Colour bool
	Zone   *time.Location
	Cell   bool // name the cell on each line: for more than one
}

// Line tells e in one line without a line end: time, number, decision, kind and
// a sentence.
func (t *Teller) Line(e *entry.Entry) string {
	zone := t.Zone
	if zone == nil {
		zone = time.UTC
	}
	sentence, decision := "its body cannot be read", kind.Decision("")
	if b, err := e.Decode(); err == nil {
		sentence, decision = Sentence(b), kind.DecisionOf(b)
	}
	var w strings.Builder
	w.WriteString(t.paint(dim, e.Time.In(zone).Format("2006-01-02 15:04:05.000")))
	if t.Cell {
		w.WriteString("  " + escape.Line(e.Cell))
	}
	fmt.Fprintf(&w, " %5d  ", e.Seq)
	w.WriteString(t.paint(colourOf(decision), fmt.Sprintf("%-5s %-19s", decision, escape.Line(string(e.Kind)))))
	w.WriteString(" " + sentence)
	return w.String()
}

type colour string

const (
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	plain  colour = ""
)

func colourOf(d kind.Decision) colour {
	switch d {
	case kind.Allow:
		return green
	case kind.Deny:
		return red
	case kind.Ask:
		return yellow
	}
	return plain
}

func (t *Teller) paint(c colour, s string) string {
	if !t.Colour || c == plain {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// say formats like fmt.Sprintf with every argument escaped. The format is ours.
func say(format string, args ...any) string {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = escape.Line(a)
		case kind.Bytes:
			args[i] = escape.Line(string(a))
		case jcs.Raw:
			args[i] = escape.Line(string(a))
		case sentence:
			args[i] = escape.Sentence(string(a))
		}
	}
	return fmt.Sprintf(format, args...)
}

// sentence is an error of a program of ours, which has quoted the names in it.
type sentence string

// because adds what there is of a reason and of what would allow it.
func because(reason, rule string, line uint32, allowWith string) string {
	var w strings.Builder
	if reason != "" {
		w.WriteString(say(": %s", reason))
	}
	if rule != "" {
		w.WriteString(say(" (rule %s", rule))
		if line > 0 {
			fmt.Fprintf(&w, ", line %d", line)
		}
		w.WriteString(")")
	}
	if allowWith == notPermitted {
		w.WriteString("; " + notPermitted)
	} else if allowWith != "" {
		w.WriteString(say("; allow with: %s", allowWith))
	}
	return w.String()
}

// notPermitted stands in a record where the operator refuses, and no line would help.
const notPermitted = "not permitted by the operator"

func times(n uint64) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(", %d times", n)
}

// short is the head of a hash, still to be escaped.
func short(hash string) string {
	if len(hash) > 12 {
		return hash[:12]
	}
	return hash
}

func bytesOf(n uint64) string {
	for _, u := range []struct {
		name string
		size uint64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return fmt.Sprintf("%d.%d %s", n/u.size, n%u.size*10/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

func duration(ms uint64) string {
	return (time.Duration(min(ms, 1<<40)) * time.Millisecond).String()
}
