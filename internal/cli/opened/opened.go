// Package opened holds the descriptors of the user's paths that skep passes.
//
// Its law: a path is opened with the user's own rights, for nothing but to be
// named, and without following a link.
package opened

import (
	"fmt"
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

// Plan opens what skepd must see to come to the same plan: each mount, and
// each symlink on the way.
func (b *Bundle) Plan(p *pathplan.Plan, links []string) error {
	for _, m := range p.Mounts {
		if err := b.Path(m.Path); err != nil {
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
