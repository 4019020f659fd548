package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/pager"
	"skep.dev/skep/internal/cli/terminal"
	"skep.dev/skep/internal/cli/words"
	"skep.dev/skep/internal/snapshot/render"
)

// paged has show write to the user's pager where a terminal would get it. A pipe and
// --json get none.
func (a *App) paged(show func(io.Writer) error) error {
	if a.noPager || a.json || !terminal.IsTerminal(a.Out) {
		return show(a.Out)
	}
	c := pager.Find(a.Env)
	if c == nil {
		return show(a.Out)
	}
	c.Stdout, c.Stderr = a.Out, a.Err
	return pager.Through(c, show)
}

// printDifference shows a difference, and at its end the hash that binds it.
func (a *App) printDifference(ctx context.Context, c *skepv1.Cell, r *received, f diffFlags) error {
	return a.paged(func(w io.Writer) error {
		out := bufio.NewWriter(w)
		var err error
		switch {
		case a.json:
			err = render.JSON(out, &r.Difference)
		default:
			err = render.Terminal(ctx, out, &r.Difference, r.layer, render.Options{Color: a.colour(), Stat: f.stat, NameOnly: f.nameOnly, Cell: c.Id})
		}
		if n := r.Conflicts(); n > 0 && f.nameOnly && !a.json {
			// The list is for a program; this is for who reads it.
			fmt.Fprintf(a.Err, "skep: %s changed in your tree since the cell started: merging replaces what changed there\n", words.Count(int64(n), "path"))
		}
		return errors.Join(err, out.Flush())
	})
}
