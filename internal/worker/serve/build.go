package serve

import (
	"fmt"
	"os"
	"slices"

	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// build makes the cgroups, shows the trees with the cell's ids where that needs
// a capability, and asks the parent for a warden. What it made is undone if it fails.
func (w *Worker) build(b *proto.Build, files []*os.File) (_ proto.Reply, _ *os.File, err error) {
	fixed, steps := files[:4], files[4:]
	var stdio []*os.File
	if b.Stdio {
		stdio, steps = files[4:5], files[5:]
	}
	if err := checkObjects(b, steps); err != nil {
		return proto.Reply{}, nil, err
	}
	steps = w.addDevices(b, steps)
	procs, enforced, err := w.cgroups.create(b.Cell, b.Limits)
	if err != nil {
		return proto.Reply{}, nil, err
	}
	defer sys.CloseAll(procs)
	defer func() {
		if err != nil {
			_, _ = w.cgroups.remove(b.Cell)
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
	shown := proto.Limits{}
	if enforced.Memory {
		shown.Memory = b.Limits.Memory
	}
	if enforced.CPU {
		shown.MilliCPU = b.Limits.MilliCPU
	}
	encoded, err := encodeSpec(b, w.ids.capable, shown)
	if err != nil {
		return proto.Reply{}, nil, err
	}
	spec, err := sys.SealedFile("skep-cell", encoded)
	if err != nil {
		return proto.Reply{}, nil, err
	}
	defer func() { _ = spec.Close() }()

	request := wardenRequest{
		UIDIn: w.ids.inside, GIDIn: w.ids.group, UIDOut: w.ids.outsideU, GOut: w.ids.outsideG,
		Cgroups: uint32(len(procs)), SpecLen: uint32(len(encoded)),
	}
	all := append([]*os.File{spec}, fixed...)
	all = append(all, procs...)
	if b.Stdio {
		request.Flags |= hasStdio
		all = append(all, stdio...)
	}
	pid, pidfd, err := w.parent.clone(request, append(all, steps...))
	if err != nil {
		return proto.Reply{}, nil, err
	}
	return proto.Reply{Pid: pid, Limits: &enforced}, pidfd, nil
}

// checkObjects refuses what no cell may be shown: a socket would lead out of it,
// a device or a FIFO to something that is not a file (L15).
func checkObjects(b *proto.Build, files []*os.File) error {
	for _, s := range b.Steps {
		if (s.Op != proto.OpBind && s.Op != proto.OpOverlay) || s.Device != "" {
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

// openDevices opens the nodes that a cell may have; they are the worker's own
// list, and no request names a path.
func openDevices() (map[string]*os.File, error) {
	nodes := map[string]*os.File{}
	for _, name := range proto.Devices() {
		f, err := sys.OpenPath("/dev/" + name)
		if err != nil {
			return nil, fmt.Errorf("open a device of every cell: %w", err)
		}
		nodes[name] = f
	}
	return nodes, nil
}

// addDevices gives the steps that name a device its descriptor.
func (w *Worker) addDevices(b *proto.Build, files []*os.File) []*os.File {
	files = slices.Clone(files)
	for i := range b.Steps {
		if name := b.Steps[i].Device; name != "" {
			b.Steps[i].FD = len(files)
			files = append(files, w.devices[name])
		}
	}
	return files
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
