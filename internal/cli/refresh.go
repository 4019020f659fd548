package cli

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/opened"
	"skep.dev/skep/internal/escape"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/secret"
)

func (a *App) refreshCommand() *cobra.Command {
	return &cobra.Command{
		Use: "refresh CELL", Short: "Read the secrets of a running cell anew", Args: exactly(1),
		Example: "skep refresh last",
		RunE:    func(c *cobra.Command, args []string) error { return a.refresh(c.Context(), args[0]) },
	}
}

// refresh opens the sources of a cell's secrets again, with the user's own rights.
func (a *App) refresh(ctx context.Context, cell string) error {
	d, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	q := &skepv1.RefreshRequest{Cell: cell}
	told, err := d.Refresh(ctx, connect.NewRequest(q))
	if err != nil {
		return err
	}
	var b opened.Bundle
	defer b.Close()
	for _, s := range told.Msg.Sources {
		from, err := secret.ParseSource(s.Source)
		if err == nil {
			err = b.Secret(s.Name, from, a.Env)
		}
		if err != nil {
			return err
		}
	}
	if q.Ticket, err = handover.Offer(launch.HandoverSocket(d.places), b.Roles, b.Files); err != nil {
		return err
	}
	if _, err := d.Refresh(ctx, connect.NewRequest(q)); err != nil {
		return err
	}
	for _, s := range told.Msg.Sources {
		if !a.json {
			fmt.Fprintf(a.Out, "%s: read anew from %s\n", escape.Line(s.Name), escape.Line(s.Source))
		}
	}
	if a.json {
		return a.printJSON(told.Msg)
	}
	return nil
}
