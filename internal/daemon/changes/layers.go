package changes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/passed"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/layer"
	"skep.dev/skep/internal/sys"
)

// layerFiles are the descriptors of a cell's writable grants.
type layerFiles struct {
	grants []cell.LayerGrant
	paths  []string // of the grants, on the host; of single files their directory
	rules  right.Paths
}

func (f *layerFiles) close() {
	for _, g := range f.grants {
		for _, file := range slices.Concat([]*os.File{g.Base, g.Layer}, slices.Collect(maps.Values(g.Files))) {
			if file != nil {
				_ = file.Close()
			}
		}
	}
}

// judge says what the profile makes writable (L8).
func (f *layerFiles) judge(grant int, path string) bool {
	if grant < 0 || grant >= len(f.paths) {
		return false
	}
	return f.rules.At(filepath.Join(f.paths[grant], path))&right.Write != 0
}

// openLayers pairs each layer of a cell with its base, which the caller opened
// (L6b). The caller closes them.
func (c *Changes) openLayers(r cells.Record, bases *handover.Bundle) (_ *layerFiles, err error) {
	if r.Guest != nil {
		return nil, fmt.Errorf("cell %s is run by another runtime, which has what it wrote", r.ID)
	}
	if !r.HasLayer() {
		what := "what it wrote is gone"
		switch r.State {
		case cells.Merged:
			what = "what it wrote is in your tree; `skep ledger show " + r.ID + "` lists it"
		case cells.Undone:
			what = "a merge of it was taken back, and its layer had gone with the merge; `skep ledger show " + r.ID + "` lists what it was"
		case cells.Declared, cells.Building, cells.Running, cells.Stopping, cells.Stopped, cells.Failed, cells.Dropped:
		}
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the cell is %s: %s", r.State, what))
	}
	f := &layerFiles{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	var rules []right.Path
	for _, text := range r.Rules {
		rule, err := right.ParsePath(text)
		if err != nil {
			return nil, fmt.Errorf("read the rules of cell %s: %w", r.ID, err)
		}
		rules = append(rules, rule)
	}
	if f.rules, err = right.NewPaths(rules...); err != nil {
		return nil, fmt.Errorf("read the rules of cell %s: %w", r.ID, err)
	}
	host := passed.By(bases)
	for _, g := range r.Grants {
		if !g.Writable {
			continue
		}
		if !host.Has(g.Path) && !g.File { // a file may be gone
			return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("no descriptor came for %s, which the cell may write", g.Path))
		}
		if g.Layer == len(f.grants) { // single files of one directory share a layer
			if err := c.openLayer(f, r.ID, g); err != nil {
				return nil, err
			}
		}
		base := bases.Take(handover.RolePath, g.Path)
		switch {
		case !g.File:
			f.grants[g.Layer].Base = base
		case base != nil:
			f.grants[g.Layer].Files[filepath.Base(g.Path)] = base
			if can, err := sys.CanRead(base); err != nil || !can {
				return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("what is at %s now is no file to compare with: move it away", g.Path))
			}
		}
	}
	return f, nil
}

// openLayer adds the layer of a grant, whose number is the next.
func (c *Changes) openLayer(f *layerFiles, id string, g cells.Grant) error {
	dir, err := os.Open(c.dir(id, strconv.Itoa(g.Layer)))
	if err != nil {
		return fmt.Errorf("open the layer of the cell: %w", err)
	}
	layer, path := cell.LayerGrant{Layer: dir}, g.Path
	if g.File {
		layer.Files, path = map[string]*os.File{}, filepath.Dir(path)
	}
	f.grants, f.paths = append(f.grants, layer), append(f.paths, path)
	return nil
}

// startLayer starts a process that serves layers, and gives the socket to it.
func (c *Changes) startLayer(ctx context.Context, powers cell.LayerPowers, grants []cell.LayerGrant) (*os.File, cell.Process, error) {
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = theirs.Close() }()
	p, err := c.Layers.Layer(ctx, theirs, powers, grants)
	if err != nil {
		_ = ours.Close()
		return nil, nil, fmt.Errorf("start a process for the layer: %w", err)
	}
	return ours, p, nil
}

// difference walks a cell's layer against its base, and marks what the host changed since
// the cell's start.
func (c *Changes) difference(ctx context.Context, r cells.Record, f *layerFiles) (*snapshot.Difference, error) {
	conn, process, err := c.startLayer(ctx, cell.LayerPowers{Walk: true}, f.grants)
	if err != nil {
		return nil, err
	}
	client := layer.NewClient(conn, len(f.grants))
	defer func() {
		_ = client.Close()
		_ = process.Kill()
	}()
	d, err := snapshot.Diff(ctx, client, f.paths, f.judge)
	if err != nil {
		return nil, err
	}
	d.MarkConflicts(r.Created)
	return d, nil
}

// fetchWait is for a caller who has hung up on the stream that gave him the ticket and
// still comes for the layer. It ends before the wait of who comes next (claimWait).
const fetchWait = 3 * time.Second

// leaveLayer starts a process for the caller, who sees contents with it, and
// leaves its socket under a ticket.
func (c *Changes) leaveLayer(ctx context.Context, by peer.Peer, f *layerFiles) (string, cell.Process, error) {
	conn, process, err := c.startLayer(ctx, cell.LayerPowers{Walk: true, Open: true}, f.grants)
	if err != nil {
		return "", nil, err
	}
	// The process ends when the last descriptor of the socket is closed: with the
	// caller, or with the ticket.
	ticket, err := c.Desk.Leave(by.UID, handover.Bundle{Roles: []handover.Role{{Role: handover.RoleLayer}}, Files: []*os.File{conn}})
	if err == nil {
		go func() { // a caller that dies before he has fetched it leaves no process
			select {
			case <-by.Gone:
			case <-process.Done():
				return
			}
			select {
			case <-time.After(fetchWait):
				c.Desk.Withdraw(ticket)
			case <-process.Done():
			}
		}()
	}
	return ticket, process, err
}

// Measure is how many bytes the disk holds of what a cell wrote, and of more
// directories of skepd's that it writes to. A process in a namespace of the cell's
// ids looks (S12a): the agent may be changing names, or have closed directories.
func (c *Changes) Measure(ctx context.Context, id string, more ...string) (int64, error) {
	entries, err := os.ReadDir(c.dir(id))
	if err != nil {
		return 0, fmt.Errorf("find the layer of the cell: %w", err)
	}
	for _, e := range entries {
		more = append(more, c.dir(id, e.Name()))
	}
	var f layerFiles
	defer f.close()
	for _, at := range more {
		dir, err := sys.OpenPath(at)
		if err != nil {
			return 0, fmt.Errorf("open the layer of the cell: %w", err)
		}
		f.grants = append(f.grants, cell.LayerGrant{Layer: dir})
	}
	conn, process, err := c.startLayer(ctx, cell.LayerPowers{Measure: true}, f.grants)
	if err != nil {
		return 0, err
	}
	client := layer.NewClient(conn, len(f.grants))
	defer func() {
		_ = client.Close()
		_ = process.Kill()
	}()
	return client.Measure(ctx)
}

// dropTime bounds the removal of a layer.
const dropTime = time.Minute

// DropLayer deletes what a cell wrote. Files that the agent made unreadable are
// removed by a process in a namespace of the cell's ids (S12a). What was begun is
// not left half done because a caller goes.
func (c *Changes) DropLayer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	err := c.emptyLayer(ctx, id)
	if err != nil && ctx.Err() == nil {
		err = c.emptyLayer(ctx, id) // its process may have been killed
	}
	if err == nil {
		err = os.RemoveAll(c.dir(id))
	}
	if err != nil {
		return fmt.Errorf("remove the layer: %w", err)
	}
	return nil
}

func (c *Changes) emptyLayer(ctx context.Context, id string) error {
	entries, err := os.ReadDir(c.dir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var f layerFiles
	defer f.close()
	for _, e := range entries {
		dir, err := sys.OpenPath(c.dir(id, e.Name())) // the agent may have closed its own
		if err != nil {
			return err
		}
		f.grants = append(f.grants, cell.LayerGrant{Layer: dir})
	}
	if len(f.grants) == 0 {
		return nil
	}
	conn, process, err := c.startLayer(ctx, cell.LayerPowers{Remove: true}, f.grants)
	if err != nil {
		return err
	}
	client := layer.NewClient(conn, len(f.grants))
	err = client.Remove(ctx)
	_ = client.Close()
	_ = process.Kill()
	return err
}
