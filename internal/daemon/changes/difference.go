package changes

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/diffwire"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/snapshot"
)

// Diff shows base against layer, and records that it was shown, with its hash (S3).
func (c *Changes) Diff(ctx context.Context, q *connect.Request[skepv1.DiffRequest], out *connect.ServerStream[skepv1.DiffChunk]) error {
	r, err := c.find(q.Msg.Cell)
	if err != nil {
		return err
	}
	p, _ := peer.Of(ctx)
	bases, err := c.bases(r, q.Msg.Ticket, p)
	if err != nil {
		return err
	}
	defer bases.Close()
	f, err := c.openLayers(r, bases)
	if err != nil {
		return err
	}
	defer f.close()
	diff, err := c.difference(ctx, f)
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	if err := c.Record.Append(r.ID, shown(diff, p)); err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	if r.State.Ended() {
		c.Record.Seal(r.ID) // nothing more comes that would
	}
	return c.sendDifference(ctx, p, f, diff, out)
}

// sendDifference streams the entries, then the hash, and a layer process for the
// caller.
func (c *Changes) sendDifference(ctx context.Context, p peer.Peer, f *layerFiles, diff *snapshot.Difference, out *connect.ServerStream[skepv1.DiffChunk]) error {
	for i := range diff.Entries {
		if err := out.Send(&skepv1.DiffChunk{Entry: diffwire.Message(&diff.Entries[i])}); err != nil {
			return err
		}
	}
	ticket, err := c.leaveLayer(ctx, p.UID, f)
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	return out.Send(&skepv1.DiffChunk{Hash: diff.Hash, LayerTicket: ticket})
}

// bases are the granted roots: the caller's, or those of a cell that still runs.
func (c *Changes) bases(r cells.Record, ticket string, p peer.Peer) (*handover.Bundle, error) {
	if ticket == "" {
		return c.Held(r.ID)
	}
	b, err := c.Desk.Take(ticket, p.UID)
	if err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return b, nil
}

// shown counts a difference for the record.
func shown(diff *snapshot.Difference, p peer.Peer) *kind.DiffShown {
	s := &kind.DiffShown{Hash: diff.Hash, Who: p.String()}
	for i := range diff.Entries {
		e := &diff.Entries[i]
		switch e.Op() {
		case snapshot.Added:
			s.Added++
		case snapshot.Removed:
			s.Removed++
		default:
			s.Changed++
		}
		if e.Refused != "" {
			s.Refused++
		}
		if e.Active != "" {
			s.Active++
		}
	}
	return s
}

// Drop throws a layer away.
func (c *Changes) Drop(ctx context.Context, q *connect.Request[skepv1.DropRequest]) (*connect.Response[skepv1.Cell], error) {
	r, err := c.find(q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	if err := ended(r); err != nil {
		return nil, err
	}
	p, _ := peer.Of(ctx)
	if r.State != cells.Dropped {
		body := &kind.Note{By: p.String(), Text: kind.Bytes("the layer was dropped")}
		if err := c.Record.Append(r.ID, body); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	// From here on it is only a rest, which a crash leaves to the next start: half a
	// layer must never pass for what a cell changed.
	if r, err = c.Cells.Change(r.ID, func(r *cells.Record) { r.State = cells.Dropped }); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	if err := errors.Join(c.endPlan(r.ID), c.DropLayer(ctx, r.ID)); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("%w; what is left of it goes at the next start of skepd", err))
	}
	c.Record.Seal(r.ID)
	return connect.NewResponse(cells.Message(r)), nil
}

// ended refuses what would pull the layer away under a running agent.
func ended(r cells.Record) error {
	if !r.State.Ended() {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the cell still runs: `skep stop` ends it"))
	}
	return nil
}
