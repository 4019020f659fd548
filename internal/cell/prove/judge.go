package prove

import (
	"fmt"
	"strings"
)

// Missing is the error of a wall that does not hold.
type Missing struct {
	Wall Wall
	Got  string // the answer, "" for none
}

func (m *Missing) Error() string {
	got := m.Got
	if got == "" {
		got = "no answer"
	}
	return fmt.Sprintf("%s: to %s gave %q where %q proves the wall", m.Wall.Name, m.Wall.Did, got, m.Wall.Want)
}

// Judge reads what the program wrote. It returns nil if every wall gave its one
// answer, else a *Missing for the first that did not.
func Judge(output string) error {
	lines := strings.SplitAfter(output, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	for i, w := range Walls() {
		got := ""
		if i < len(lines) {
			got = strings.TrimSuffix(lines[i], "\n")
		}
		if said, ok := strings.CutPrefix(got, w.Name+": "); ok {
			got = said
		}
		if i >= len(lines) || lines[i] != w.Name+": "+w.Want+"\n" {
			return &Missing{Wall: w, Got: got}
		}
	}
	if n := len(Walls()); len(lines) > n {
		return fmt.Errorf("it said more than was asked: %q", lines[n])
	}
	return nil
}
