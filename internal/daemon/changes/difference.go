package changes

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/diffwire"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/snapshot"
)

// compared is a cell's difference as it is now, with what it was read from.
type compared struct {
	cell  cells.Record
	by    peer.Peer
	files *layerFiles
	diff  *snapshot.Difference
	bases *handover.Bundle
}

func (k *compared) close() {
	k.files.close()
	k.bases.Close()
}

// compare reads a cell's difference for a caller, who left the granted roots under the
// ticket and closes it; ready says whether the cell is to be looked at now.
func (c *Changes) compare(ctx context.Context, ref, ticket string, ready func(cells.Record) error) (_ *compared, err error) {
	k := &compared{files: &layerFiles{}, bases: &handover.Bundle{}}
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	if k.cell, err = c.find(ref); err != nil {
		return nil, err
	}
	if err := ready(k.cell); err != nil {
		return nil, err
	}
	k.by, _ = peer.Of(ctx)
	bases, err := c.basesOf(k.cell, ticket, k.by)
	if err != nil {
		return nil, err
	}
	k.bases = bases
	files, err := c.openLayers(k.cell, bases)
	if err != nil {
		return nil, err
	}
	k.files = files
	if k.diff, err = c.difference(ctx, k.cell, files); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return k, nil
}

// show records that the difference was shown, then sends it.
func (c *Changes) show(ctx context.Context, k *compared, out *connect.ServerStream[skepv1.DiffChunk]) error {
	if err := c.Record.Append(k.cell.ID, shown(k.diff, k.by)); err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	if k.cell.State.Ended() {
		c.Record.Seal(k.cell.ID) // nothing more comes that would
	}
	_, err := c.send(ctx, k, out)
	return err
}

// Diff shows base against layer, and records that it was shown, with its hash (S3).
func (c *Changes) Diff(ctx context.Context, q *connect.Request[skepv1.DiffRequest], out *connect.ServerStream[skepv1.DiffChunk]) error {
	k, err := c.compare(ctx, q.Msg.Cell, q.Msg.Ticket, func(cells.Record) error { return nil })
	if err != nil {
		return err
	}
	defer k.close()
	return c.show(ctx, k, out)
}

// send streams the entries, then the hash, and a layer process for the caller, which
// ends when he goes.
func (c *Changes) send(ctx context.Context, k *compared, out *connect.ServerStream[skepv1.DiffChunk]) (cell.Process, error) {
	for i := range k.diff.Entries {
		if err := out.Send(&skepv1.DiffChunk{Entry: diffwire.Message(&k.diff.Entries[i])}); err != nil {
			return nil, err
		}
	}
	ticket, process, err := c.leaveLayer(ctx, k.by, k.files)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return process, out.Send(&skepv1.DiffChunk{Hash: k.diff.Hash, LayerTicket: ticket})
}

// basesOf are the granted roots: the caller's, or those of a cell that still runs.
func (c *Changes) basesOf(r cells.Record, ticket string, p peer.Peer) (*handover.Bundle, error) {
	if ticket == "" {
		return c.Held(r.ID)
	}
	b, err := c.Desk.Take(ticket, p.UID)
	if err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return b, nil
}

// shown counts a difference for the record; the two paths of a rename are one.
func shown(diff *snapshot.Difference, p peer.Peer) *kind.DiffShown {
	s := &kind.DiffShown{Hash: diff.Hash, Who: p.String()}
	s.Conflicts = uint64(diff.Conflicts())
	renames := diff.Renames()
	s.Renamed = uint64(len(renames.To))
	for i := range diff.Entries {
		e := &diff.Entries[i]
		if _, from := renames.From[i]; from {
			continue
		}
		if _, to := renames.To[i]; to {
			continue
		}
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
	mine, other := c.claims.try(r.ID, p)
	if other != nil && !r.HasLayer() {
		return connect.NewResponse(cells.Message(r)), nil // a rest of the layer is going just now
	}
	if mine == nil {
		if mine, err = c.claims.take(ctx, r.ID, p); err != nil {
			return nil, err
		}
	}
	defer c.claims.give(r.ID, mine)
	if r, err = c.find(r.ID); err != nil { // it may have been merged meanwhile
		return nil, err
	}
	if r.State == cells.Merged || r.State == cells.Undone {
		// There is nothing to drop, and what became of it stays to be seen; a rest of the
		// layer that a crash has left goes.
		if err := c.DropLayer(ctx, r.ID); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
		return connect.NewResponse(cells.Message(r)), nil
	}
	if r.State != cells.Dropped {
		body := &kind.Note{By: p.String(), Text: kind.Bytes("the layer was dropped")}
		if err := c.Record.Append(r.ID, body); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	// From here on it is only a rest, which a crash leaves to the next start: half a
	// layer must never pass for what a cell changed.
	if r, err = c.Cells.Drop(r.ID); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	if err := errors.Join(c.endPlan(r.ID, false), c.DropLayer(ctx, r.ID)); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("%w; what is left of it goes at the next start of skepd", err))
	}
	c.Cells.Retry() // there is room again
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
