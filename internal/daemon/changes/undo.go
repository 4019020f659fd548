package changes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/snapshot"
)

// MergeUndo finds the caller's last merge of a hash in the record, and records that the
// caller takes it back, before it does (D3). Journal and old files are in the caller's
// own state: whether they are there still is the caller's to know.
func (c *Changes) MergeUndo(ctx context.Context, q *connect.Request[skepv1.MergeUndoRequest]) (*connect.Response[skepv1.Cell], error) {
	p, _ := peer.Of(ctx)
	m, err := c.merged(q.Msg.Hash, p)
	if err != nil {
		return nil, connect.NewError(connect.CodeDataLoss, err)
	}
	if m == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf(
			"the record of this skepd has no merge of %.*s by you that was not taken back: was it merged with another --state?", snapshot.MinHashPrefix, q.Msg.Hash))
	}
	r, err := c.find(m.cell)
	if err != nil {
		return nil, err
	}
	err = c.Record.Append(r.ID, &kind.ApprovalDecided{
		Proposal: proposal(r.ID, true), Hash: q.Msg.Hash, Decision: "allow", Who: p.String(), Identity: "uid", Scope: "once",
	})
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	if err := c.keepPlan(r.ID, true, &mergePlan{UID: p.UID, Hash: q.Msg.Hash, Root: m.root, Undo: m.back()}); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(cells.Message(r)), nil
}

// done is a merge as it was recorded.
type done struct {
	cell, root string
	paths      []kind.Path
	whole      bool // its last part is there
}

// merged is a caller's last merge of a hash, or nil if that is not whole or was taken back.
func (c *Changes) merged(hash string, p peer.Peer) (*done, error) {
	var last *done
	for e, err := range c.Record.Read("", []kind.Kind{kind.KindMergeApplied}) {
		if err != nil {
			return nil, fmt.Errorf("look in the record for the merge: %w", err)
		}
		b, ok := e.Body.(*kind.MergeApplied)
		if !ok || b.Hash != hash || b.Who != p.String() {
			continue
		}
		if b.Undo {
			last = nil
			continue
		}
		if b.Part == 1 {
			last = &done{cell: e.Cell, root: string(b.Root)}
		}
		if last == nil || last.cell != e.Cell {
			return nil, errors.New("the parts of a merge are not together in the record")
		}
		last.paths = append(last.paths, b.Paths...)
		last.whole = b.Part == b.Parts
	}
	if last == nil || !last.whole {
		return nil, nil
	}
	return last, nil
}

// back is every path the other way round.
func (m *done) back() []kind.Path {
	other := map[string]string{snapshot.Added.String(): snapshot.Removed.String(), snapshot.Removed.String(): snapshot.Added.String()}
	out := slices.Clone(m.paths)
	for i, p := range out {
		if op, turned := other[p.Op]; turned {
			out[i].Op = op
		}
		out[i].Base, out[i].Layer = p.Layer, p.Base
	}
	return out
}
