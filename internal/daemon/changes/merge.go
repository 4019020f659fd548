package changes

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/snapshot"
)

// pathsPerEntry keeps an entry of a merge well below the largest one.
const pathsPerEntry = 10_000

// MergePlan checks the hash against the difference as it is now, records who
// approves it, and only then opens the layer for the caller (S4). If it moved,
// the new difference is sent, with its other hash.
func (c *Changes) MergePlan(ctx context.Context, q *connect.Request[skepv1.MergePlanRequest], out *connect.ServerStream[skepv1.DiffChunk]) error {
	r, err := c.find(q.Msg.Cell)
	if err != nil {
		return err
	}
	by, _ := peer.Of(ctx)
	mine, err := c.claims.take(ctx, r.ID, by)
	if err != nil {
		return err
	}
	process, err := c.planned(ctx, q, out)
	if process == nil {
		c.claims.give(r.ID, mine)
		return err
	}
	c.claims.until(process.Done(), r.ID, mine)
	return err
}

// planned is MergePlan for whoever has claimed the cell: the process that serves the
// layer, if the merge is approved.
func (c *Changes) planned(ctx context.Context, q *connect.Request[skepv1.MergePlanRequest], out *connect.ServerStream[skepv1.DiffChunk]) (cell.Process, error) {
	k, err := c.compare(ctx, q.Msg.Cell, q.Msg.Ticket, ended)
	if err != nil {
		return nil, err
	}
	defer k.close()
	same, err := snapshot.MatchHash(k.diff.Hash, q.Msg.Hash)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if !same {
		return nil, c.show(ctx, k, out) // nothing is fixed: the caller reads what is there now
	}
	// Merges are durable before their effect (D3): a crash of the caller in the
	// middle leaves this entry, and the journal in the caller's own state.
	err = c.Record.Append(k.cell.ID, &kind.ApprovalDecided{
		Proposal: proposal(k.cell.ID, false), Hash: k.diff.Hash, Decision: "allow", Who: k.by.String(), Identity: "uid", Scope: "once",
		Active: bytesOf(q.Msg.WithActive),
	})
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	plan := &mergePlan{UID: k.by.UID, Hash: k.diff.Hash, Root: rootsOf(k.diff), Diff: k.diff}
	if err := c.keepPlan(k.cell.ID, false, plan); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return c.send(ctx, k, out)
}

// MergeCommit records every path that the caller merged, and ends the layer; or that it
// has taken them back. What an earlier call recorded before a crash is not recorded again.
func (c *Changes) MergeCommit(ctx context.Context, q *connect.Request[skepv1.MergeCommitRequest]) (*connect.Response[skepv1.Cell], error) {
	o, err := c.open(ctx, q.Msg.Cell, q.Msg.Hash, q.Msg.Undo)
	switch {
	case errors.Is(err, errNoPlan) && o.before.complete:
		return connect.NewResponse(cells.Message(o.cell)), nil
	case err != nil:
		return nil, err
	}
	paths := o.plan.Undo
	if !o.undo {
		if paths, err = mergedPaths(o.plan.Diff, q.Msg.Paths); err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	if err := c.applied(o, paths); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	r := o.cell
	next := r.State
	switch {
	case !o.undo && !held(o.plan.Diff, paths): // what waits for --with-active is nowhere else than in the layer
		next = cells.Merged
	case o.undo && r.State == cells.Merged:
		// An undo changes no layer: one that is still there has all of it, one that is
		// gone does not come back.
		next = cells.Undone
	}
	if next != r.State {
		if r, err = c.Cells.Change(r.ID, func(r *cells.Record) { r.State = next }); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	// The plan goes after the state that it decides: until then the call can be made again.
	if err := c.endPlan(r.ID, o.undo); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	switch {
	case o.undo:
	case r.State == cells.Merged:
		c.dropMerged(ctx, r.ID, o.by)
	default:
		c.claims.give(r.ID, nil)
	}
	c.Record.Seal(r.ID)
	return connect.NewResponse(cells.Message(r)), nil
}

// dropMerged removes the layer of a cell that is merged, and gives the cell up: the tree
// has it and the record says so, so that it is only a rest, which a crash leaves to the
// next start.
func (c *Changes) dropMerged(ctx context.Context, id string, by peer.Peer) {
	mine := c.claims.renew(id, by)
	drop := func() {
		defer c.claims.give(id, mine)
		if err := c.DropLayer(context.WithoutCancel(ctx), id); err != nil {
			c.Log.Warn("the layer of a merged cell is left", "cell", id, "err", err)
		}
	}
	if c.Later == nil {
		drop()
		return
	}
	c.Later(drop)
}

// applied records paths, in as many entries as they need.
func (c *Changes) applied(o *opened, paths []kind.Path) error {
	parts := slices.Collect(slices.Chunk(paths, pathsPerEntry))
	if len(parts) == 0 {
		parts = [][]kind.Path{{}}
	}
	for i, part := range parts {
		if i < o.before.parts {
			continue
		}
		err := c.Record.Append(o.cell.ID, &kind.MergeApplied{
			Hash: o.plan.Hash, Who: o.by.String(), Root: kind.Bytes(o.plan.Root), Paths: part,
			Part: uint32(i + 1), Parts: uint32(len(parts)), Undo: o.undo,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// MergeAbort records that the caller's merge, or its undo, changed nothing; once, as MergeCommit.
func (c *Changes) MergeAbort(ctx context.Context, q *connect.Request[skepv1.MergeAbortRequest]) (*connect.Response[skepv1.Cell], error) {
	o, err := c.open(ctx, q.Msg.Cell, q.Msg.Hash, q.Msg.Undo)
	switch {
	case errors.Is(err, errNoPlan) && o.before.refused:
		return connect.NewResponse(cells.Message(o.cell)), nil
	case err != nil:
		return nil, err
	}
	if !o.before.refused {
		err = c.Record.Append(o.cell.ID, &kind.MergeRefused{
			Hash: o.plan.Hash, Who: o.by.String(), Root: kind.Bytes(o.plan.Root), Reason: q.Msg.Reason, Paths: []kind.Path{}, Undo: o.undo,
		})
		if err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, err)
		}
	}
	if err := c.endPlan(o.cell.ID, o.undo); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	if !o.undo {
		c.claims.give(o.cell.ID, nil)
	}
	c.Record.Seal(o.cell.ID)
	return connect.NewResponse(cells.Message(o.cell)), nil
}

// opened is what was approved and is to be ended.
type opened struct {
	cell   cells.Record
	by     peer.Peer
	undo   bool
	before told
	plan   *mergePlan
}

// open finds what a caller tells the end of. Where there is no plan the error is
// errNoPlan, and the rest says what the record has.
func (c *Changes) open(ctx context.Context, ref, hash string, undo bool) (*opened, error) {
	r, err := c.find(ref)
	if err != nil {
		return nil, err
	}
	p, _ := peer.Of(ctx)
	o := &opened{cell: r, by: p, undo: undo}
	if o.before, err = c.told(r.ID, hash, undo, p); err != nil {
		return nil, connect.NewError(connect.CodeDataLoss, err)
	}
	if o.plan, err = c.planOf(r.ID, undo, p.UID, hash); err != nil {
		return o, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return o, nil
}

// rootsOf is the one root that a difference touches, or the deepest directory
// above all of them.
func rootsOf(diff *snapshot.Difference) string {
	if len(diff.Grants) == 0 {
		return "/"
	}
	root := diff.Grants[0]
	for _, g := range diff.Grants[1:] {
		for root != "/" && g != root && len(g) > 0 && !within(g, root) {
			root = filepath.Dir(root)
		}
	}
	return root
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// mergedPaths finds what the caller says it merged in the difference that was
// planned: nothing else can have been merged under its hash.
func mergedPaths(diff *snapshot.Difference, given [][]byte) ([]kind.Path, error) {
	entries := make(map[string]*snapshot.Entry, len(diff.Entries))
	for i := range diff.Entries {
		entries[diff.FullPath(&diff.Entries[i])] = &diff.Entries[i]
	}
	out := make([]kind.Path, 0, len(given))
	for _, path := range given {
		e := entries[string(path)]
		if e == nil || e.Refused != "" {
			return nil, fmt.Errorf("%q is not in the difference that was planned", path)
		}
		out = append(out, kind.Path{Path: kind.Bytes(path), Op: e.Op().String(), Base: digest(&e.Base), Layer: digest(&e.Layer)})
	}
	return out, nil
}

// held reports whether an active path was left out that another merge may name.
func held(diff *snapshot.Difference, merged []kind.Path) bool {
	done := make(map[string]bool, len(merged))
	for _, p := range merged {
		done[string(p.Path)] = true
	}
	return slices.ContainsFunc(diff.Entries, func(e snapshot.Entry) bool {
		return e.Held && e.Refused == "" && !done[diff.FullPath(&e)]
	})
}

func digest(s *snapshot.State) string {
	if s.Type != snapshot.File {
		return ""
	}
	return hex.EncodeToString(s.Digest[:])
}

func bytesOf(names []string) []kind.Bytes {
	var out []kind.Bytes
	for _, n := range names {
		out = append(out, kind.Bytes(n))
	}
	return out
}
