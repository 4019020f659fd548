package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/escape"
)

// ended tells how a cell ended: in the result file, on stderr, by the status (L19).
func (s *session) ended(c *skepv1.Cell) error {
	if s.flags.result != "" {
		if err := writeResult(s.flags.result, c); err != nil {
			return err
		}
	}
	if c.State == skepv1.CellState_CELL_STATE_FAILED {
		return fmt.Errorf("the cell did not start: %s (skep why %s)", escape.Line(strings.TrimPrefix(c.Cause, "failed: ")), c.Id)
	}
	if c.Error != "" && !strings.HasPrefix(c.Cause, "budget") {
		fmt.Fprintln(s.app.Err, "skep:", escape.Line(c.Error))
	}
	if !s.app.quiet {
		for _, line := range footer(c) {
			fmt.Fprintln(s.app.Err, line)
		}
	}
	if c.ExitCode != 0 {
		return &statusError{code: int(c.ExitCode)}
	}
	return nil
}

// footer is what L19b puts on stderr.
func footer(c *skepv1.Cell) []string {
	lines := []string{fmt.Sprintf("cell %s stopped: %s, %s", c.Id, ending(c), duration(c.Started, c.Stopped))}
	switch n := c.FilesChanged; {
	case n > 0:
		lines = append(lines, fmt.Sprintf("%s changed: skep diff %s", count(n, "file"), c.Id))
	case n < 0:
		lines = append(lines, "files changed: skep diff "+c.Id)
	}
	if n := c.CrossingsRefused; n > 0 {
		lines = append(lines, fmt.Sprintf("%s refused: skep ledger show %s --decision deny", count(n, "crossing"), c.Id))
	}
	return lines
}

// ending is the cause of a cell's end, with its status.
func ending(c *skepv1.Cell) string {
	what := fmt.Sprintf("exit %d", c.ExitCode)
	if c.Cause != "exit" {
		what = escape.Line(c.Cause) + ", " + what
	}
	return what
}

func count(n int64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// duration is between two times of the API, for a person.
func duration(from, to string) string {
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

// writeResult replaces the result file as a whole.
func writeResult(file string, c *skepv1.Cell) error {
	raw, err := oneLine(c)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), ".skep-result-")
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	_, err = temporary.Write(append(raw, '\n'))
	if err == nil {
		err = temporary.Close()
	}
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// oneLine is a message as JSON with every field, in a stable form. The state of a
// cell is the word that a person reads too.
func oneLine(m proto.Message) ([]byte, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	line, err := compact(raw)
	if c, ok := m.(*skepv1.Cell); ok && err == nil {
		// Within a string the quotes have backslashes: this is the field itself.
		line = bytes.Replace(line, fmt.Appendf(nil, `"state":%q`, c.State), fmt.Appendf(nil, `"state":%q`, stateWord(c.State)), 1)
	}
	return line, err
}

func (a *App) printJSON(m proto.Message) error {
	raw, err := oneLine(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", raw)
	return err
}
