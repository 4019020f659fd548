package cli

import (
	"context"
	"fmt"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/escape"
)

// printDifference shows a difference: active paths first, refused ones with their
// reason, the hash at the end.
func (a *App) printDifference(_ context.Context, c *skepv1.Cell, r *received, f diffFlags) error {
	if a.json {
		for _, m := range r.messages {
			if err := a.printJSON(m); err != nil {
				return err
			}
		}
		return a.printValue(map[string]any{"hash": r.Hash, "cell": c.Id, "entries": len(r.Entries)})
	}
	for _, active := range []bool{true, false} {
		for i := range r.Entries {
			e := &r.Entries[i]
			if (e.Active != "") != active {
				continue
			}
			path := escape.Line(r.FullPath(e))
			if f.nameOnly {
				fmt.Fprintln(a.Out, path)
				continue
			}
			fmt.Fprintf(a.Out, "%-8s %s%s\n", e.Op(), path, remark(e.Active, e.Held, e.Refused))
		}
	}
	if f.nameOnly {
		return nil
	}
	if s := summary(r); s != "" {
		fmt.Fprintln(a.Out, s)
	}
	_, err := fmt.Fprintln(a.Out, hashLine(c, r))
	return err
}

func remark(active string, held bool, refused string) string {
	switch {
	case refused != "":
		return "  (refused: " + escape.Line(refused) + ")"
	case held:
		return "  (held back: " + escape.Line(active) + ")"
	case active != "":
		return "  (" + escape.Line(active) + ")"
	}
	return ""
}
