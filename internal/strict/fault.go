package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pos is a place in a file: line and column count from 1, columns in
// characters. The zero Pos stands for the file as a whole.
type Pos struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// Fault is one thing that is wrong with a file, and what to do about it.
type Fault struct {
	File    string `json:"file"`
	Pos            // embedded, so that JSON has line and column beside file
	Text    string `json:"text"`          // the offending text
	Message string `json:"message"`       // what is wrong
	Fix     string `json:"fix,omitempty"` // what to write instead
	Source  string `json:"source"`        // the whole line that it stands in
}

// Error is one line: file:line:column: message; fix. Text of the file is
// escaped, since a profile may come out of a repository that nobody has read
// (L18a).
func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	b.WriteString(": " + Printable(f.Message))
	if f.Fix != "" {
		b.WriteString("; " + Printable(f.Fix))
	}
	return b.String()
}

// Render is Error with the source line below it and a caret under the text.
func (f Fault) Render() string {
	if f.Line == 0 {
		return f.Error() + "\n"
	}
	before := []rune(f.Source)
	before = before[:min(len(before), max(0, f.Column-1))]
	// The caret must stand under what is shown, so that the escaped form is
	// what gets measured.
	indent := utf8.RuneCountInString(Printable(string(before)))
	width := max(1, utf8.RuneCountInString(Printable(f.Text)))
	rest := utf8.RuneCountInString(Printable(f.Source)) - indent
	width = max(1, min(width, rest))
	return fmt.Sprintf("%s\n    %s\n    %s%s\n", f.Error(), Printable(f.Source),
		strings.Repeat(" ", indent), strings.Repeat("^", width))
}

// Faults is all that is wrong with one file, in the order of its lines. A nil
// Faults means that nothing is.
type Faults []Fault

// Error is one line for each fault.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Render is what a person reads: every fault with its line and a caret.
func (fs Faults) Render() string {
	var b strings.Builder
	for _, f := range fs {
		b.WriteString(f.Render())
	}
	return b.String()
}

// Err is fs as an error, and nil (not a typed nil) when there is no fault.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}

// Sort puts the faults in the order of the file and drops repeats.
func (fs Faults) Sort() Faults {
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(fs)
}

// Printable replaces what a terminal would act upon: control and format
// characters (bidi marks among them) and invalid bytes become Go escapes.
func Printable(s string) string {
	clean := func(r rune) bool {
		return r != utf8.RuneError && (r == ' ' || unicode.IsGraphic(r)) && !unicode.Is(unicode.Cf, r)
	}
	if !strings.ContainsFunc(s, func(r rune) bool { return !clean(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if clean(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteToASCII(s[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[n:]
	}
	return b.String()
}
