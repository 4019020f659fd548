// Package passed looks at the host's files as far as a caller has handed them over.
//
// Its law: where an object stands is the kernel's word, not the caller's; what was
// not handed over is absent. No path is opened.
package passed

import (
	"os"
	"path"
	"strings"

	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/sys"
)

// Host is a pathplan.Host that opens nothing.
type Host struct {
	objects map[string]*os.File
}

// By is what a bundle shows. Roles whose object is not where they say are voided.
func By(b *handover.Bundle) Host {
	h := Host{objects: map[string]*os.File{}}
	for i, r := range b.Roles {
		if r.Role != handover.RolePath || b.Files[i] == nil {
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
func (h Host) Lstat(name string) (pathplan.Kind, error) {
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
func (h Host) Readlink(name string) (string, error) {
	if h.objects[name] == nil {
		return "", os.ErrNotExist
	}
	return sys.ReadlinkAt(h.objects[name], "")
}

// Has tells whether the object at a path was handed over.
func (h Host) Has(name string) bool { return h.objects[name] != nil }
