package daemon

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/diffwire"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/sys"
)

// diff shows base against layer, and records that it was shown, with its hash (S3).
func (d *Daemon) diff(ctx context.Context, q *connect.Request[skepv1.DiffRequest], out *connect.ServerStream[skepv1.DiffChunk]) error {
	r, err := d.find(q.Msg.Cell)
	if err != nil {
		return err
	}
	p, _ := peerOf(ctx)
	bases, err := d.bases(r, q.Msg.Ticket, p)
	if err != nil {
		return err
	}
	defer bases.Close()
	f, err := d.openLayers(r, bases)
	if err != nil {
		return err
	}
	defer f.close()
	diff, err := d.difference(ctx, f)
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	if err := d.record(r.ID, shown(diff, p)); err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	return d.sendDifference(ctx, p, f, diff, out)
}

// sendDifference streams the entries, then the hash, and a layer process for the
// caller.
func (d *Daemon) sendDifference(ctx context.Context, p peer, f *layerFiles, diff *snapshot.Difference, out *connect.ServerStream[skepv1.DiffChunk]) error {
	for i := range diff.Entries {
		if err := out.Send(&skepv1.DiffChunk{Entry: diffwire.Message(&diff.Entries[i])}); err != nil {
			return err
		}
	}
	ticket, err := d.leaveLayer(ctx, p.uid, f)
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	return out.Send(&skepv1.DiffChunk{Hash: diff.Hash, LayerTicket: ticket})
}

// bases are the granted roots: the caller's, or those of a cell that still runs.
func (d *Daemon) bases(r cells.Record, ticket string, p peer) (*handover.Bundle, error) {
	if ticket != "" {
		b, err := d.desk.Take(ticket, p.uid)
		if err != nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
		return b, nil
	}
	b := &handover.Bundle{}
	l := d.lifeOf(r.ID)
	if l == nil {
		return b, nil // openLayers names the first root that is missing
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return b, nil
	}
	for _, f := range l.held {
		at, ok := sys.PathOf(f)
		dup, err := sys.Duplicate(f)
		if err != nil {
			b.Close()
			return nil, err
		}
		if !ok {
			_ = dup.Close()
			continue
		}
		b.Roles = append(b.Roles, handover.Role{Role: rolePath, Path: at})
		b.Files = append(b.Files, dup)
	}
	return b, nil
}

// shown counts a difference for the record.
func shown(diff *snapshot.Difference, p peer) *kind.DiffShown {
	s := &kind.DiffShown{Hash: diff.Hash, Who: caller(p)}
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

// caller names a caller in the record.
func caller(p peer) string { return fmt.Sprintf("uid:%d", p.uid) }

// drop throws a layer away.
func (d *Daemon) drop(ctx context.Context, q *connect.Request[skepv1.DropRequest]) (*connect.Response[skepv1.Cell], error) {
	r, err := d.find(q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	if err := ended(r); err != nil {
		return nil, err
	}
	p, _ := peerOf(ctx)
	if r.State != cells.Dropped {
		body := &kind.Note{By: caller(p), Text: kind.Bytes("the layer was dropped")}
		if err := d.record(r.ID, body); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	if err := d.dropLayer(ctx, r.ID); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	if r, err = d.cells.Change(r.ID, func(r *cells.Record) { r.State = cells.Dropped }); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	d.seal(r.ID)
	return connect.NewResponse(message(r)), nil
}

// ended refuses what would pull the layer away under a running agent.
func ended(r cells.Record) error {
	if !r.State.Ended() {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the cell still runs: `skep stop` ends it"))
	}
	return nil
}

// seal signs what was recorded of a cell after its end.
func (d *Daemon) seal(id string) {
	if err := d.ledger.EndCell(id); err != nil {
		d.Log.Warn("a cell's last entries are not sealed yet", "cell", id, "err", err)
	}
}
