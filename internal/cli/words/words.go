// Package words says amounts, times and states as a person reads them.
//
// Its law: nothing that a cell spelt leaves it unescaped.
package words

import (
	"fmt"
	"strings"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/escape"
)

// Ending is the cause of a cell's end, with its status.
func Ending(c *skepv1.Cell) string {
	what := fmt.Sprintf("exit %d", c.ExitCode)
	if c.Cause != "exit" {
		what = escape.Sentence(c.Cause) + ", " + what
	}
	return what
}

// Count is a number of things, one of which is called word.
func Count(n int64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// Duration is between two times of the API, for a person.
func Duration(from, to string) string {
	a, err1 := time.Parse(time.RFC3339Nano, from)
	b, err2 := time.Parse(time.RFC3339Nano, to)
	if err1 != nil || err2 != nil {
		return "0 s"
	}
	d := b.Sub(a)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	default:
		return d.Round(time.Second).String()
	}
}

// Dash stands for nothing.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// State is the state of a cell in one word.
func State(s skepv1.CellState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "CELL_STATE_"))
}

// Clock is a time of the API in the user's zone.
func Clock(t string) string {
	at, err := time.Parse(time.RFC3339Nano, t)
	if err != nil {
		return "-"
	}
	return at.Local().Format("2006-01-02 15:04:05")
}

// Footer is what L19b puts on stderr.
func Footer(c *skepv1.Cell) []string {
	lines := []string{fmt.Sprintf("cell %s stopped: %s, %s", c.Id, Ending(c), Duration(c.Started, c.Stopped))}
	if budget, is := strings.CutPrefix(c.Cause, "budget: "); is {
		lines = append(lines, fmt.Sprintf("its limit, budget.%s, was %s: skep why %s", escape.Line(budget), Amount(budget, c.Limit), c.Id))
	}
	switch n := c.FilesChanged; {
	case n > 0:
		lines = append(lines, fmt.Sprintf("%s changed: skep diff %s", Count(n, "file"), c.Id))
	case n < 0:
		lines = append(lines, "files changed, but they were not counted: skep diff --stat "+c.Id)
	}
	if n := c.CrossingsRefused; n > 0 {
		lines = append(lines, fmt.Sprintf("%s refused: skep ledger show %s --decision deny", Count(n, "crossing"), c.Id))
	}
	return lines
}
