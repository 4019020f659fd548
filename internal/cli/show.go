package cli

import (
	"bufio"
	"context"
	"errors"
	"io"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/snapshot/render"
)

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
		return errors.Join(err, out.Flush())
	})
}
