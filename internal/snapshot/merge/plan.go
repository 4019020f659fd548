package merge

import (
	"path"
	"slices"
	"strings"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/merge/journal"
)

// LeftOut is a path of the difference that a merge did not apply.
type LeftOut struct {
	Path   string // on the host
	Reason string
}

// plan turns a difference into units.
type plan struct {
	d       *snapshot.Difference
	reasons []string // by entry, "" for what is applied
	index   []map[string]int
	units   []journal.Unit
	dirs    []journal.Touched
	left    []LeftOut
}

func makePlan(d *snapshot.Difference, withActive []string) *plan {
	p := &plan{d: d, reasons: make([]string, len(d.Entries)), index: make([]map[string]int, len(d.Grants))}
	for i := range p.index {
		p.index[i] = map[string]int{}
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		p.index[e.Grant][e.Path] = i
		p.reasons[i] = reason(d, e, withActive)
	}
	p.close()
	p.build()
	for i, why := range p.reasons {
		if why != "" {
			p.left = append(p.left, LeftOut{Path: d.FullPath(&d.Entries[i]), Reason: why})
		}
	}
	return p
}

// reason says why an entry by itself is not applied.
func reason(d *snapshot.Difference, e *snapshot.Entry, withActive []string) string {
	changes := e.Changes()
	switch {
	case e.Refused != "":
		return e.Refused
	case e.Held && !named(d, e, withActive):
		return "active path (" + e.Active + "): merged only if --with-active names it"
	case len(changes) == 1 && changes[0] == snapshot.OwnerChanged:
		return "ownership is not merged"
	}
	return ""
}

// unmatched is the first of the names that names nothing of the difference.
func unmatched(d *snapshot.Difference, names []string) string {
	for _, name := range names {
		if !slices.ContainsFunc(d.Entries, func(e snapshot.Entry) bool { return named(d, &e, []string{name}) }) {
			return name
		}
	}
	return ""
}

// named reports whether one of the names, on the host or below the grant, is
// the entry's path or a directory above it.
func named(d *snapshot.Difference, e *snapshot.Entry, names []string) bool {
	for _, name := range names {
		name = path.Clean(name)
		for _, have := range []string{e.Path, d.FullPath(e)} {
			if have == name || strings.HasPrefix(have, name+"/") {
				return true
			}
		}
	}
	return false
}

// close leaves out what depends on something left out: a directory cannot go
// while something in it stays, and nothing can be put in one that is not made.
// Whatever hangs on such a directory stays with it, so that no half of it is
// merged: a .git whose config is held is not emptied around it.
func (p *plan) close() {
	for i := range p.d.Entries {
		if p.reasons[i] == "" {
			continue
		}
		p.above(&p.d.Entries[i], func(j int) bool {
			e := &p.d.Entries[j]
			if p.reasons[j] == "" && e.Base.Type == snapshot.Dir && e.Layer.Type != snapshot.Dir {
				p.reasons[j] = "something below it is left out"
			}
			return true
		})
	}
	// Sorted order has parents first, so one pass reaches every depth.
	for i := range p.d.Entries {
		if p.reasons[i] != "" {
			continue
		}
		p.above(&p.d.Entries[i], func(j int) bool {
			e := &p.d.Entries[j]
			if p.reasons[j] != "" && !(e.Base.Type == snapshot.Dir && e.Layer.Type == snapshot.Dir) {
				p.reasons[i] = "a directory above it is left out"
				return false
			}
			return true
		})
	}
}

// above visits the entries of the directories above e, nearest first.
func (p *plan) above(e *snapshot.Entry, visit func(int) bool) {
	for dir := e.Path; ; {
		cut := strings.LastIndexByte(dir, '/')
		if cut < 0 {
			return
		}
		dir = dir[:cut]
		if j, ok := p.index[e.Grant][dir]; ok && !visit(j) {
			return
		}
	}
}

// build makes the units and lists the directories that they touch.
func (p *plan) build() {
	tops := make([]map[string]int, len(p.d.Grants)) // path of a unit to its index
	seen := make([]map[string]bool, len(p.d.Grants))
	for i := range tops {
		tops[i], seen[i] = map[string]int{}, map[string]bool{}
	}
	for i := range p.d.Entries {
		e := &p.d.Entries[i]
		if p.reasons[i] != "" {
			continue
		}
		if e.Base.Type == snapshot.Dir && e.Layer.Type == snapshot.Dir {
			after := e.Layer
			after.Mode = snapshot.MergedMode(e.Base, e.Layer)
			p.dirs = append(p.dirs, journal.Touched{Root: e.Grant, Path: e.Path, Before: e.Base, After: after, Meta: true})
			seen[e.Grant][e.Path] = true
			continue
		}
		p.add(e, tops[e.Grant])
	}
	for i := range p.units {
		u := &p.units[i]
		// The root too: the staging directory is made in it.
		for _, dir := range []string{path.Dir(u.Path), "."} {
			if !seen[u.Root][dir] {
				seen[u.Root][dir] = true
				p.dirs = append(p.dirs, journal.Touched{Root: u.Root, Path: dir})
			}
		}
	}
}

// add puts an entry into the unit that it lies in, or makes one.
func (p *plan) add(e *snapshot.Entry, tops map[string]int) {
	at, rel := -1, "."
	if i, ok := tops[e.Path]; ok {
		at = i
	}
	p.above(e, func(j int) bool {
		top := p.d.Entries[j].Path
		if i, ok := tops[top]; ok {
			at, rel = i, e.Path[len(top)+1:]
		}
		return at < 0
	})
	if at < 0 {
		at = len(p.units)
		p.units = append(p.units, journal.Unit{Root: e.Grant, Path: e.Path})
		tops[e.Path] = at
	}
	u := &p.units[at]
	if e.Base.Type != snapshot.Absent {
		u.Before = append(u.Before, journal.Node{Rel: rel, State: e.Base, Entry: e.Path})
	}
	if e.Layer.Type != snapshot.Absent {
		after := e.Layer
		after.Mode = snapshot.MergedMode(e.Base, e.Layer)
		u.After = append(u.After, journal.Node{Rel: rel, State: after, Entry: e.Path, Group: e.Group})
	}
}
