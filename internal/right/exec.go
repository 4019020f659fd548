package right

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// Exec names programs that may be executed: one by its absolute path, or with
// a final "/*" every one directly in a directory. The zero Exec names none.
type Exec struct{ Pattern string }

// NewExec checks a pattern.
func NewExec(pattern string) (Exec, error) {
	base := strings.TrimSuffix(pattern, "/*")
	if base == "" && pattern == "/*" {
		base = "/"
	}
	if strings.Contains(base, "*") {
		return Exec{}, fmt.Errorf("exec %q: a * stands only in a final /*", pattern)
	}
	if _, err := NewPath(base, Execute); err != nil {
		return Exec{}, fmt.Errorf("exec: %w", err)
	}
	return Exec{pattern}, nil
}

// Covers: the pattern matches all that child's does.
func (e Exec) Covers(child Exec) bool {
	if child.Pattern == "" || e == child {
		return true
	}
	dir, all := strings.CutSuffix(e.Pattern, "/*")
	if !all || strings.HasSuffix(child.Pattern, "/*") {
		return false // two different directories, or a directory in one program
	}
	if dir == "" {
		dir = "/"
	}
	return path.Dir(child.Pattern) == dir && child.Pattern != "/"
}

// String is the pattern.
func (e Exec) String() string { return e.Pattern }

// ParseExec takes what String gives.
func ParseExec(text string) (Exec, error) {
	e, err := NewExec(text)
	return roundTrip("exec", text, e, err)
}

// MarshalJSON is the pattern as a string.
func (e Exec) MarshalJSON() ([]byte, error) { return json.Marshal(e.Pattern) }

// UnmarshalJSON takes what MarshalJSON gives.
func (e *Exec) UnmarshalJSON(data []byte) error {
	var text string
	if err := strictJSON(data, &text); err != nil {
		return fmt.Errorf("exec right: %w", err)
	}
	v, err := ParseExec(text)
	if err == nil {
		*e = v
	}
	return err
}
