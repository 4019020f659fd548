package serve

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// startBox starts a boundary process: no argument, no environment, its
// descriptors and nothing else. Root's worker starts it as the daemon's user, in an
// empty root. An ordinary user's cannot: that takes a user namespace, and whoever
// owns that could trace the box (B15).
func (w *Worker) startBox(files []*os.File) (reply proto.Reply, pidfd *os.File, err error) {
	cmd := exec.Command(w.config.Box)
	cmd.ExtraFiles = files
	attr := &syscall.SysProcAttr{Setsid: true}
	if !w.ids.capable {
		return w.start(cmd, attr)
	}
	if w.emptyRoot != nil && !w.emptyRoot.holds(w.config.Box) { // it was replaced (L20a)
		w.emptyRoot.close()
		w.emptyRoot = nil
	}
	if w.emptyRoot == nil {
		if w.emptyRoot, err = newEmptyRoot(w.config.Box); err != nil {
			return proto.Reply{}, nil, err
		}
	}
	cmd.Path, cmd.Args, cmd.Stdin, cmd.Stdout = boxInRoot, []string{boxInRoot}, w.emptyRoot.null, w.emptyRoot.null
	attr.Credential = &syscall.Credential{Uid: w.ids.daemonUID, Gid: w.ids.daemonGD}
	w.emptyRoot.do(func() { reply, pidfd, err = w.start(cmd, attr) })
	return reply, pidfd, err
}

// startLayer starts a process of the cell's own ids, which alone can read and
// remove whatever an agent left behind (S12a). The program loses its
// capabilities by its non-zero id, so they are made ambient.
func (w *Worker) startLayer(l *proto.Layer, files []*os.File) (proto.Reply, *os.File, error) {
	trees := files[1:]
	if w.ids.capable {
		var err error
		if trees, err = w.layerTrees(l, files[1:]); err != nil {
			sys.CloseAll(trees)
			return proto.Reply{}, nil, err
		}
		defer sys.CloseAll(trees)
	}
	request, err := proto.Encode(l)
	if err != nil {
		return proto.Reply{}, nil, err
	}
	cmd := exec.Command(w.config.Self, "layer", string(request))
	cmd.ExtraFiles = append([]*os.File{files[0]}, trees...)
	inside := syscall.SysProcIDMap{ContainerID: int(w.ids.inside), HostID: int(w.ids.outsideU), Size: 1}
	group := syscall.SysProcIDMap{ContainerID: int(w.ids.group), HostID: int(w.ids.outsideG), Size: 1}
	return w.start(cmd, &syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{inside},
		GidMappings: []syscall.SysProcIDMap{group},
		Credential: &syscall.Credential{
			Uid: uint32(inside.ContainerID), Gid: uint32(group.ContainerID), NoSetGroups: true,
		},
		AmbientCaps: []uintptr{sys.CapDACOverride, sys.CapFowner},
	})
}

// startKeys starts the process between a cell and its owner's ssh-agent (L15), as the
// daemon's user. It confines itself as a box does, before it reads a byte.
func (w *Worker) startKeys(files []*os.File) (proto.Reply, *os.File, error) {
	cmd := exec.Command(w.config.Self, "keys")
	cmd.ExtraFiles = files
	attr := &syscall.SysProcAttr{Setsid: true}
	if w.ids.capable {
		attr.Credential = &syscall.Credential{Uid: w.ids.daemonUID, Gid: w.ids.daemonGD}
	}
	return w.start(cmd, attr)
}

// layerTrees shows base and layer with the cell's ids, as build does.
func (w *Worker) layerTrees(l *proto.Layer, files []*os.File) (trees []*os.File, err error) {
	var kinds []mapKind
	for _, g := range l.Grants {
		for range g.Files {
			kinds = append(kinds, asItIs)
		}
		if !g.Plain && !g.Own {
			kinds = append(kinds, mapOwner)
		}
		kinds = append(kinds, mapDaemon)
	}
	for i, f := range files {
		if kinds[i] == asItIs {
			own, err := sys.Duplicate(f)
			if err != nil {
				return trees, err
			}
			trees = append(trees, own)
			continue
		}
		tree, err := sys.DetachedMount(f)
		if err != nil {
			return trees, err
		}
		trees = append(trees, tree)
		ns, err := w.maps.namespace(kinds[i], f)
		if err != nil {
			return trees, err
		}
		if err := sys.Idmap(tree, ns); err != nil {
			return trees, err
		}
	}
	return trees, nil
}

func (w *Worker) start(cmd *exec.Cmd, attr *syscall.SysProcAttr) (proto.Reply, *os.File, error) {
	pidfd := -1
	attr.PidFD = &pidfd
	cmd.SysProcAttr, cmd.Env, cmd.Dir, cmd.Stderr = attr, []string{}, "/", os.Stderr
	if err := cmd.Start(); err != nil {
		return proto.Reply{}, nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() { _ = cmd.Wait() }() // it is skepd that watches; here it is only reaped
	if pidfd < 0 {
		_ = cmd.Process.Kill()
		return proto.Reply{}, nil, fmt.Errorf("start %s: the kernel gives no pidfd", cmd.Path)
	}
	return proto.Reply{Pid: cmd.Process.Pid}, os.NewFile(uintptr(pidfd), "pidfd"), nil
}
