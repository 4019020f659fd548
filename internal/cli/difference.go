package cli

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cli/opened"
	"skep.dev/skep/internal/daemon/diffwire"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/layer"
)

// diffFlags are those of `skep diff`.
type diffFlags struct{ stat, nameOnly, exitCode bool }

func (a *App) diffCommand() *cobra.Command {
	var f diffFlags
	c := &cobra.Command{
		Use: "diff CELL", Short: "Show what a cell changed, and the hash that a merge needs", Args: exactly(1),
		Example: "skep diff last\nskep diff --stat fixer\nskep diff --json last | jq -r .hash",
		RunE:    func(c *cobra.Command, args []string) error { return a.diff(c.Context(), args[0], f) },
	}
	c.Flags().BoolVar(&f.stat, "stat", false, "only the paths and sizes")
	c.Flags().BoolVar(&f.nameOnly, "name-only", false, "only the paths")
	c.Flags().BoolVar(&f.exitCode, "exit-code", false, "end with 1 if there are differences")
	return c
}

// received is a difference with the layer that it was read from.
type received struct {
	snapshot.Difference
	layer *layer.Client  // nil where skepd left none
	roots *opened.Bundle // the granted roots, opened by us
}

func (r *received) close() {
	if r.layer != nil {
		_ = r.layer.Close()
	}
	r.roots.Close()
}

func (a *App) diff(ctx context.Context, ref string, f diffFlags) error {
	d, err := a.ready(ctx)
	if err != nil {
		return err
	}
	c, roots, ticket, err := a.offerRoots(ctx, d, ref)
	if err != nil {
		return err
	}
	r := &received{roots: roots}
	defer r.close()
	stream, err := d.Diff(ctx, connect.NewRequest(&skepv1.DiffRequest{Cell: c.Id, Ticket: ticket}))
	if err != nil {
		return err
	}
	if err := a.receive(d, c, stream, r); err != nil {
		return err
	}
	if err := a.printDifference(ctx, c, r, f); err != nil {
		return err
	}
	if f.exitCode && len(r.Entries) > 0 {
		return &statusError{code: statusRefused}
	}
	return nil
}

// offerRoots opens the writable grants of a cell with the user's own rights and
// leaves them with skepd.
func (a *App) offerRoots(ctx context.Context, d *daemon, ref string) (*skepv1.Cell, *opened.Bundle, string, error) {
	g, err := d.Get(ctx, connect.NewRequest(&skepv1.GetRequest{Cell: ref}))
	if err != nil {
		return nil, nil, "", err
	}
	b := &opened.Bundle{}
	for _, grant := range g.Msg.Grants {
		if !grant.Writable {
			continue
		}
		if err := b.Root(grant.Path, int(grant.Layer)); err != nil {
			b.Close()
			return nil, nil, "", err
		}
	}
	if len(b.Files) == 0 {
		return g.Msg, b, "", nil
	}
	ticket, err := handover.Offer(launch.HandoverSocket(d.places), b.Roles, b.Files)
	if err != nil {
		b.Close()
		return nil, nil, "", err
	}
	return g.Msg, b, ticket, nil
}

// receive reads a stream of a difference to its end, and fetches the layer.
func (a *App) receive(d *daemon, c *skepv1.Cell, stream *connect.ServerStreamForClient[skepv1.DiffChunk], r *received) error {
	defer func() { _ = stream.Close() }()
	shown := a.working("comparing")
	defer shown.stop()
	r.Grants = r.roots.Roots
	ticket := ""
	for stream.Receive() {
		m := stream.Msg()
		if m.Hash != "" {
			r.Hash, ticket = m.Hash, m.LayerTicket
			continue
		}
		e, err := diffwire.Entry(m.Entry)
		if err != nil {
			return fmt.Errorf("read the difference: %w", err)
		}
		if e.Grant < 0 || e.Grant >= len(r.Grants) {
			return fmt.Errorf("read the difference: an entry of grant %d", e.Grant)
		}
		r.Entries = append(r.Entries, e)
		shown.one("reading the difference")
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if r.Hash == "" {
		return errors.New("read the difference: it ended before its hash")
	}
	if ticket == "" {
		return nil
	}
	b, err := handover.Fetch(launch.HandoverSocket(d.places), ticket)
	if err != nil {
		return err
	}
	conn := b.Take(handover.RoleLayer, "")
	b.Close()
	if conn == nil {
		return errors.New("read the difference: skepd left no layer")
	}
	r.layer = layer.NewClient(conn, len(r.Grants))
	return nil
}
