package strict

import (
	"fmt"
	"slices"
	"strings"
)

// Report collects the faults of one file. Its readers give the zero value and
// false after they have added a fault.
type Report struct {
	file   string
	lines  []string
	faults Faults
	secret []int        // lines that are never shown
	seen   map[Pos]bool // scalars that became part of the tree
}

// Faults are those found so far, in the order of the file; nil if none.
func (r *Report) Faults() Faults {
	for i, f := range r.faults {
		if slices.Contains(r.secret, f.Line) {
			r.faults[i].Source = "(not shown)"
		}
	}
	return r.faults.Sort()
}

// Add notes a fault at a place.
func (r *Report) Add(at Pos, text, message, fix string) {
	f := Fault{File: r.file, Pos: at, Text: text, Message: message, Fix: fix}
	if at.Line > 0 && at.Line <= len(r.lines) {
		f.Source = r.lines[at.Line-1]
	}
	r.faults = append(r.faults, f)
}

// Fault notes that a node is wrong.
func (r *Report) Fault(n *Node, message, fix string) { r.Add(n.Pos, n.Text, message, fix) }

// Source is the text by lines, for faults that are found later.
func (r *Report) Source() []string { return r.lines }

// Len is the number of faults so far: a reader compares it before and after to
// know whether what it has read may be used.
func (r *Report) Len() int { return len(r.faults) }

// File is the name under which the file was read.
func (r *Report) File() string { return r.file }

// wrong notes a value of the wrong kind; what names the key.
func (r *Report) wrong(n *Node, what, want, example string) {
	if n.Kind == Null && n.Text == "~" {
		r.Add(n.Pos, n.Text, what+" has no value: a bare ~ is nothing in YAML",
			"leave the key out; where a home directory is meant, write ~/")
		return
	}
	if n.Kind == Null && !n.Quoted {
		r.Add(n.Pos, n.Text, what+" has no value", "leave the key out, or give it "+want+": "+example)
		return
	}
	if n.Kind == Null {
		return // a foreign construct, already reported
	}
	r.Fault(n, fmt.Sprintf("%s must be %s, not %s", what, want, n.Kind), "for example "+example)
}

// Fields takes a mapping with the given keys, and gives its values by key. An
// unknown key is a fault with the nearest known one.
func (r *Report) Fields(n *Node, what, example string, keys []string) (map[string]*Node, bool) {
	if n.Kind != Map {
		r.wrong(n, what, "a mapping", example)
		return nil, false
	}
	out := map[string]*Node{}
	for _, f := range n.Fields {
		if slices.Contains(keys, f.Key) {
			out[f.Key] = f.Value
			continue
		}
		fix := "known here: " + strings.Join(keys, ", ")
		if near := nearest(f.Key, keys); near != "" {
			fix = fmt.Sprintf("did you mean %q?", near)
		}
		r.Add(f.At, f.Key, fmt.Sprintf("unknown key %q", f.Key), fix)
	}
	return out, true
}

// Items takes a list with at least one item.
func (r *Report) Items(n *Node, what, example string) []*Node {
	if n.Kind != List {
		r.wrong(n, what, "a list", example)
		return nil
	}
	if len(n.Items) == 0 {
		r.Add(n.Pos, "[]", what+" is an empty list", "leave the key out, or list something: "+example)
	}
	return n.Items
}

// Str takes text. A bare number or true/false is not text: quoting it is the fix.
func (r *Report) Str(n *Node, what, example string) (string, bool) {
	switch n.Kind {
	case String:
		if n.Text == "" {
			r.Add(n.Pos, `""`, what+" is empty", "for example "+example)
			return "", false
		}
		return n.Text, true
	case Int, Float, Bool:
		r.Fault(n, fmt.Sprintf("%s must be text, not %s", what, n.Kind), fmt.Sprintf("quote it: %q", n.Text))
	default:
		r.wrong(n, what, "text", example)
	}
	return "", false
}

// Strs takes a list of different texts.
func (r *Report) Strs(n *Node, what, example string) []*Node {
	var out []*Node
	seen := map[string]int{}
	for _, item := range r.Items(n, what, example) {
		s, ok := r.Str(item, "an entry of "+what, example)
		if !ok {
			continue
		}
		if line, twice := seen[s]; twice {
			r.Fault(item, fmt.Sprintf("%q is listed twice in %s", s, what), fmt.Sprintf("it already stands in line %d; keep one", line))
			continue
		}
		seen[s] = item.Line
		out = append(out, item)
	}
	return out
}

// Flag takes true or false.
func (r *Report) Flag(n *Node, what string) (value, ok bool) {
	if n.Kind != Bool {
		r.wrong(n, what, "true or false", "true")
		return false, false
	}
	return n.Text == "true", true
}

// OneOf takes one word of a closed set.
func (r *Report) OneOf(n *Node, what string, words ...string) (string, bool) {
	list := strings.Join(words, ", ")
	if n.Kind != String {
		r.wrong(n, what, "one of "+list, words[0])
		return "", false
	}
	if !slices.Contains(words, n.Text) {
		fix := "write one of: " + list
		if near := nearest(n.Text, words); near != "" {
			fix = fmt.Sprintf("did you mean %q? It is one of: %s", near, list)
		}
		r.Fault(n, fmt.Sprintf("%s cannot be %q", what, n.Text), fix)
		return "", false
	}
	return n.Text, true
}

// nearest is the word at most two edits (a third of its length) away, or "".
func nearest(word string, words []string) string {
	best, found := 3, ""
	for _, w := range words {
		if d := distance(strings.ToLower(word), w); d < best && d*2 <= len(w) {
			best, found = d, w
		}
	}
	return found
}

// distance is Levenshtein's, over bytes: keys are ASCII. Long words are never near.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Unsupported notes a key that is known, but whose enforcement this build does
// not have: refusing it is the only honest answer.
func (r *Report) Unsupported(at Pos, text, what string) {
	r.Add(at, text, what+" is not supported by this build", "remove it; a later release enforces it")
}

// Hide keeps a line that may hold a secret out of every fault of the file.
func (r *Report) Hide(at Pos) { r.secret = append(r.secret, at.Line) }

// Secret notes a fault at a value that must not be repeated: its line is not
// shown by any fault of the file.
func (r *Report) Secret(at Pos, message, fix string) {
	r.secret = append(r.secret, at.Line)
	r.Add(at, "", message, fix)
}
