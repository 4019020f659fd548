package pathplan

import (
	"cmp"
	"maps"
	"path"
	"slices"

	"skep.dev/skep/internal/right"
)

// finish derives the mounts and the judging set from the final rules.
func (m *planner) finish(links []Link) {
	var paths []right.Path
	mounts := map[string]Mount{}
	// In sorted order a directory comes before what it contains.
	for _, at := range slices.Sorted(maps.Keys(m.rules)) {
		r := m.rules[at]
		m.plan.Rules = append(m.plan.Rules, r.PathRule)
		wider, _ := right.Paths(paths).Rule(at)
		paths = append(paths, r.Path)
		if r.kind != Dir && r.kind != File || r.Access == wider.Access {
			continue // nothing to mount, or nothing to change
		}
		mount := Mount{Path: at, Dir: r.kind == Dir, Writable: r.Access&right.Write != 0, Line: r.Line}
		within, mounted := nearest(mounts, at)
		switch {
		case r.Access == 0 && (!mounted || within.Kind == Hide):
			continue // nothing is visible there anyway
		case r.Access == 0:
			mount.Kind = Hide
		case mounted && within.Writable && !mount.Writable:
			mount.Kind = Protect
		default:
			mount.Kind = Grant
		}
		mounts[at] = mount
		if mounted && within.Writable {
			for dir := path.Dir(at); dir != within.Path; dir = path.Dir(dir) {
				mounts[dir] = Mount{Kind: Point, Path: dir, Writable: true, Dir: true}
			}
		}
	}
	m.plan.set, _ = right.NewPaths(paths...) // the map has each path once
	m.plan.Mounts = slices.SortedFunc(maps.Values(mounts), func(a, b Mount) int { return cmp.Compare(a.Path, b.Path) })
	m.plan.Links = outside(links, m.plan.Mounts)
}

// nearest is the innermost mount that holds a path.
func nearest(mounts map[string]Mount, at string) (Mount, bool) {
	for dir := path.Dir(at); ; dir = path.Dir(dir) {
		if mount, ok := mounts[dir]; ok {
			return mount, true
		}
		if dir == "/" {
			return Mount{}, false
		}
	}
}

// outside keeps the links that no mount brings along, each once.
func outside(links []Link, mounts []Mount) []Link {
	var out []Link
	for _, l := range links {
		visible := slices.ContainsFunc(mounts, func(m Mount) bool { return m.Kind == Grant && right.Contains(m.Path, l.Path) })
		if !visible && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b Link) int { return cmp.Compare(a.Path, b.Path) })
	return out
}
