package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/words"
	"skep.dev/skep/internal/escape"
)

// ended tells how a cell ended: in the result file, on stderr, by the status (L19).
func (s *session) ended(ctx context.Context, c *skepv1.Cell) error {
	if s.flags.result != "" {
		if err := writeResult(s.flags.result, c); err != nil {
			return err
		}
	}
	if c.State == skepv1.CellState_CELL_STATE_FAILED {
		why := strings.Split(strings.TrimSpace(strings.TrimPrefix(c.Cause, "failed: ")), "\n")
		for i := range why {
			why[i] = escape.Sentence(why[i])
		}
		return fmt.Errorf("the cell did not start: %s (skep why %s)", strings.Join(why, "\n"), c.Id)
	}
	if c.Error != "" && !strings.HasPrefix(c.Cause, "budget") {
		s.app.say("%s", escape.Sentence(c.Error))
	}
	if err := s.footer(c); err != nil {
		return err
	}
	s.tellRefused(ctx, c)
	if c.ExitCode != 0 {
		return &statusError{code: int(c.ExitCode)}
	}
	return nil
}

// footer says on stderr how it ended (L19b), with --json as the cell.
func (s *session) footer(c *skepv1.Cell) error {
	if s.app.quiet {
		return nil
	}
	lines := words.Footer(c)
	if s.app.json {
		raw, err := words.JSON(c)
		if err != nil {
			return err
		}
		lines = []string{string(raw)}
	}
	for _, line := range lines {
		fmt.Fprintln(s.app.Err, line)
	}
	return nil
}

// writeResult replaces the result file as a whole.
func writeResult(file string, c *skepv1.Cell) error {
	raw, err := words.JSON(c)
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

func (a *App) printJSON(m proto.Message) error {
	raw, err := words.JSON(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", raw)
	return err
}
