package right

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A word is a role, a dialect, a secret's name: what the canonical texts hold
// unquoted.
func checkWord(what, s string) error {
	bad := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._:/@-", c)
	}
	if s == "" || len(s) > 128 || strings.ContainsFunc(s, bad) {
		return fmt.Errorf("%s %q: want 1 to 128 letters, digits and ._:/@-", what, s)
	}
	return nil
}

// canonicalWords checks, sorts and drops repeats.
func canonicalWords(what string, words []string) ([]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	out := slices.Clone(words)
	slices.Sort(out)
	out = slices.Compact(out)
	for _, w := range out {
		if err := checkWord(what, w); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// subset tells whether every child is among the parents.
func subset[T comparable](child, parent []T) bool {
	for _, c := range child {
		if !slices.Contains(parent, c) {
			return false
		}
	}
	return true
}

// roundTrip refuses a text that is not the canonical one for its own value,
// so that a right has exactly one text.
func roundTrip[T fmt.Stringer](what, text string, v T, err error) (T, error) {
	var zero T
	if err != nil {
		return zero, fmt.Errorf("parse %s right %q: %w", what, text, err)
	}
	if v.String() != text {
		return zero, fmt.Errorf("parse %s right %q: not canonical, want %q", what, text, v.String())
	}
	return v, nil
}

// strictJSON decodes one value and refuses unknown fields and what follows.
func strictJSON(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("more than one JSON value")
	}
	return nil
}
