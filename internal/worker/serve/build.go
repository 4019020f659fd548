package serve

import (
	"errors"
	"fmt"
	"os"

	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// build completes a half-built cell: with the trees that it is granted, shown with
// the cell's ids where that needs a capability, and then, while those are mounted, with
// its cgroups. What it made is undone if it fails.
func (w *Worker) build(b *proto.Build, files []*os.File) (_ proto.Reply, _ *os.File, err error) {
	fixed, steps := files[:4], files[4:]
	var stdio []*os.File
	if b.Stdio {
		stdio, steps = files[4:5], files[5:]
	}
	if err := checkObjects(b, steps); err != nil {
		return proto.Reply{}, nil, err
	}
	h, err := w.take()
	if err != nil {
		return proto.Reply{}, nil, err
	}
	defer func() {
		if h != nil {
			w.drop(h)
		}
	}()
	if w.ids.capable {
		trees, err := w.detach(b, steps)
		defer sys.CloseAll(trees)
		if err != nil {
			return proto.Reply{}, nil, err
		}
		steps = trees
	}
	enforced := w.cgroups.enforced(b.Limits)
	spec, size, err := w.spec(b, enforced)
	if err != nil {
		return proto.Reply{}, nil, err
	}
	defer func() { _ = spec.Close() }()
	ofWarden := part{wardenRequest{SpecLen: size}, append(append([]*os.File{spec}, fixed...), stdio...)}
	if b.Stdio {
		ofWarden.request.Flags = hasStdio
	}
	ofInit := part{wardenRequest{SpecLen: size}, append([]*os.File{spec}, steps...)}
	groups := func() ([]*os.File, error) { return w.cgroups.create(b.Cell, b.Limits) }
	pid, pidfd, err := w.complete(h, ofWarden, ofInit, groups)
	if errors.Is(err, errGone) && h.kept { // it ended since it was looked at
		_, _ = w.cgroups.remove(b.Cell)
		if h, err = w.begin(); err == nil {
			pid, pidfd, err = w.complete(h, ofWarden, ofInit, groups)
		}
	}
	if err != nil {
		_, _ = w.cgroups.remove(b.Cell)
		return proto.Reply{}, nil, err
	}
	return proto.Reply{Pid: pid, Limits: &enforced}, pidfd, nil
}

// beforeOwn is more than the processes that a cell's limit of its own counts beside
// those in its group, such as its warden.
const beforeOwn = 8

// spec is what the warden and PID 1 read of a cell, and its size in bytes.
func (w *Worker) spec(b *proto.Build, enforced proto.Enforced) (*os.File, uint32, error) {
	own := proto.Limits{Pids: b.Limits.Pids}
	if own.Pids > 0 && w.cgroups.has("pids") {
		own.Pids += beforeOwn // the group refuses first, and counts what it refused
	}
	if enforced.Memory {
		own.Memory = b.Limits.Memory
	}
	if enforced.CPU {
		own.MilliCPU = b.Limits.MilliCPU
	}
	encoded, err := encodeSpec(b, w.ids.capable, own)
	if err != nil {
		return nil, 0, err
	}
	f, err := sys.SealedFile("skep-cell", encoded)
	return f, uint32(len(encoded)), err
}

// checkObjects refuses what no cell may be shown: a socket would lead out of it,
// a device or a FIFO to something that is not a file (L15).
func checkObjects(b *proto.Build, files []*os.File) error {
	for _, s := range b.Steps {
		if s.Op != proto.OpBind && s.Op != proto.OpOverlay {
			continue
		}
		st, err := sys.StatFile(files[s.FD])
		if err != nil {
			return err
		}
		kind := st.Mode & sys.ModeTypeMask
		if kind != sys.ModeDir && (kind != sys.ModeRegular || s.Op == proto.OpOverlay) {
			return fmt.Errorf("%s is neither a directory nor a regular file: a cell is not shown it", s.Path)
		}
	}
	return nil
}

// detach replaces each descriptor by a mount that the cell may attach. What the
// agent may write belongs to it in the cell: a writable grant by the caller's
// files, a layer by the daemon's. Read-only grants keep the host's ids, so that
// what only root may read stays closed.
func (w *Worker) detach(b *proto.Build, files []*os.File) (trees []*os.File, err error) {
	kinds := make([]mapKind, len(files))
	for _, s := range b.Steps {
		switch {
		case s.Own:
			kinds[s.FD] = mapDaemon
		case s.Op == proto.OpOverlay && !s.ReadOnly:
			kinds[s.FD], kinds[s.FD+1] = mapOwner, mapDaemon
		case s.Op == proto.OpBind && s.Private:
			kinds[s.FD] = mapDaemon
		}
	}
	for i, f := range files {
		tree, err := sys.DetachedMount(f)
		if err != nil {
			return trees, err
		}
		trees = append(trees, tree)
		if kinds[i] == mapNone {
			continue
		}
		ns, err := w.maps.namespace(kinds[i], f)
		if err != nil {
			return trees, err
		}
		if err := sys.Idmap(tree, ns); err != nil {
			return trees, fmt.Errorf("give the agent its own ids in %s: %w", f.Name(), err)
		}
	}
	return trees, nil
}
