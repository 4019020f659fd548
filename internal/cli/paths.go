package cli

import (
	"fmt"
	"os"
	"path"

	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/sys"
)

// bundle collects descriptors with their roles.
type bundle struct {
	roles []handover.Role
	files []*os.File
	seen  map[string]bool
}

func (b *bundle) add(role, path string, f *os.File) {
	b.roles = append(b.roles, handover.Role{Role: role, Path: path})
	b.files = append(b.files, f)
}

func (b *bundle) close() { sys.CloseAll(b.files) }

// openPath adds a path, opened for nothing but to be named, and without following
// a link: the planner has followed them all.
func (b *bundle) openPath(name string) error {
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
	b.add(handover.RolePath, name, f)
	return nil
}

// openPlan opens what skepd must see to come to the same plan: each mount, and
// each symlink on the way.
func (b *bundle) openPlan(p *pathplan.Plan, links []string) error {
	for _, m := range p.Mounts {
		if err := b.openPath(m.Path); err != nil {
			return err
		}
	}
	for _, l := range links {
		if err := b.openPath(l); err != nil {
			return err
		}
	}
	return nil
}

// recorded is the host's files, and remembers which links it was asked for.
type recorded struct {
	pathplan.OS
	links []string
}

// Readlink implements pathplan.Host.
func (r *recorded) Readlink(name string) (string, error) {
	target, err := r.OS.Readlink(name)
	if err == nil {
		r.links = append(r.links, path.Clean(name))
	}
	return target, err
}
