package daemon

import (
	"os"
	"path"
	"strings"

	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/sys"
)

// The roles of descriptors in a ticket.
const (
	rolePath  = "path"  // a path of the plan, or a symlink on the way to one, opened O_PATH
	roleStdio = "stdio" // the caller's end of the agent's input and output
	roleLayer = "layer" // the socket of a layer process, for the caller
)

// passedHost is the host's files as far as the caller has handed them over: the
// planner needs no path to be opened. Where each stands is the kernel's word, not
// the caller's.
type passedHost struct {
	objects map[string]*os.File
}

// passed drops the roles whose object is not where they say.
func passed(b *handover.Bundle) passedHost {
	h := passedHost{objects: map[string]*os.File{}}
	for i, r := range b.Roles {
		if r.Role != rolePath || b.Files[i] == nil {
			continue
		}
		if at, ok := sys.PathOf(b.Files[i]); ok && at == r.Path {
			h.objects[at] = b.Files[i]
		} else {
			b.Roles[i].Role = "moved"
		}
	}
	return h
}

// Lstat implements pathplan.Host. A directory above something that was handed
// over is there; what was not is absent.
func (h passedHost) Lstat(name string) (pathplan.Kind, error) {
	f := h.objects[name]
	if f == nil {
		for at := range h.objects {
			if strings.HasPrefix(at, path.Clean(name)+"/") {
				return pathplan.Dir, nil
			}
		}
		return pathplan.Absent, nil
	}
	st, err := sys.StatFile(f)
	if err != nil {
		return pathplan.Absent, err
	}
	switch st.Mode & sys.ModeTypeMask {
	case sys.ModeRegular:
		return pathplan.File, nil
	case sys.ModeDir:
		return pathplan.Dir, nil
	case sys.ModeSymlink:
		return pathplan.Symlink, nil
	}
	return pathplan.Other, nil
}

// Readlink implements pathplan.Host.
func (h passedHost) Readlink(name string) (string, error) {
	if h.objects[name] == nil {
		return "", os.ErrNotExist
	}
	return sys.ReadlinkAt(h.objects[name], "")
}
