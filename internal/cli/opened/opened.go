// Package opened holds the descriptors of the user's paths that skep passes.
//
// Its law: a path is opened with the user's own rights, without following a link,
// and for nothing but to be named; a single file that a cell may write is opened
// for reading too, since the cell gets a copy of it (decision 20).
package opened

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/sys"
)

// Bundle collects descriptors with their roles.
type Bundle struct {
	Roles []handover.Role
	Files []*os.File
	Roots []string // what Root added: by layer, the directory
	seen  map[string]bool
}

// Add takes a file over.
func (b *Bundle) Add(role, path string, f *os.File) {
	b.Roles = append(b.Roles, handover.Role{Role: role, Path: path})
	b.Files = append(b.Files, f)
}

// Close closes the files.
func (b *Bundle) Close() { sys.CloseAll(b.Files) }

// Path adds a path, opened for nothing but to be named, and without following
// a link: the planner has followed them all.
func (b *Bundle) Path(name string) error {
	if b.seen == nil {
		b.seen = map[string]bool{}
	}
	if b.seen[name] {
		return nil
	}
	b.seen[name] = true
	f, err := sys.OpenPlace(name)
	if err != nil {
		return fmt.Errorf("open %s for the cell: %w", name, err)
	}
	b.Add(handover.RolePath, name, f)
	return nil
}

// File adds a single file that a cell may write. One that is no regular file any
// more is only named: skepd says what it thinks of it.
func (b *Bundle) File(name string) error {
	at := len(b.Files)
	if err := b.Path(name); err != nil || at == len(b.Files) {
		return err
	}
	st, err := sys.StatFile(b.Files[at])
	if err != nil || st.Mode&sys.ModeTypeMask != sys.ModeRegular {
		return err
	}
	f, err := sys.ReopenToRead(b.Files[at])
	if err != nil {
		return fmt.Errorf("read %s for the cell: %w", name, err)
	}
	_ = b.Files[at].Close()
	b.Files[at] = f
	return nil
}

// Root adds a writable grant of a cell, with the number of its layer: a directory,
// or one of the single files of a directory, which share a layer. What is not there
// was a file, or skepd refuses.
func (b *Bundle) Root(name string, layer int) error {
	before, root := len(b.Files), name
	err := b.File(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := false
	if err == nil && len(b.Files) > before {
		st, err := sys.StatFile(b.Files[before])
		if err != nil {
			return err
		}
		dir = st.Mode&sys.ModeTypeMask == sys.ModeDir
	}
	if !dir {
		root = path.Dir(name)
	}
	if layer >= len(b.Roots) {
		b.Roots = append(b.Roots, root)
	}
	return nil
}

// Plan opens what skepd must see to come to the same plan: each mount, and
// each symlink on the way.
func (b *Bundle) Plan(p *pathplan.Plan, links []string) error {
	for _, m := range p.Mounts {
		open := b.Path
		if m.Kind == pathplan.Grant && m.Writable && !m.Dir {
			open = b.File
		}
		if err := open(m.Path); err != nil {
			return err
		}
	}
	for _, l := range links {
		if err := b.Path(l); err != nil {
			return err
		}
	}
	return nil
}

// Host is the host's files, and remembers which links it was asked for.
type Host struct {
	pathplan.OS
	Links []string
}

// Readlink implements pathplan.Host.
func (r *Host) Readlink(name string) (string, error) {
	target, err := r.OS.Readlink(name)
	if err == nil {
		r.Links = append(r.Links, path.Clean(name))
	}
	return target, err
}
