package pathplan

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/strict"
)

// Input is what is planned.
type Input struct {
	Profile  *profile.Profile
	Homes    []string // home directories, at least the user's
	Own      []string // Skep's state, run and config directories (place.Places.Dirs)
	Programs []string // directories of Skep's programs
}

// MountKind is what a mount is for.
type MountKind string

// The kinds of mounts.
const (
	Grant   MountKind = "grant"   // makes a path visible: a read-only bind, or an overlay if writable
	Protect MountKind = "protect" // remounts a part of a writable grant read-only
	Hide    MountKind = "hide"    // covers a part of a grant with nothing
	Point   MountKind = "point"   // binds a directory over itself, so that it cannot be renamed away
)

// Mount is one step; a parent comes before what it contains. Path is real, and
// the same inside and outside (L8c).
type Mount struct {
	Kind     MountKind `json:"kind"`
	Path     string    `json:"path"`
	Writable bool      `json:"writable,omitempty"`
	Dir      bool      `json:"dir"`            // else a regular file
	Line     int       `json:"line,omitempty"` // of the rule; 0 for what Skep adds itself
}

// Hidden is a path that a grant holds and a cell does not see.
type Hidden struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Plan is what a cell sees of the host's files.
type Plan struct {
	Mounts  []Mount            `json:"mounts"`
	Links   []Link             `json:"links,omitempty"`   // to make in the cell's root, outside of all grants
	Hidden  []Hidden           `json:"hidden,omitempty"`  // by L8b, and there on the host
	Missing []profile.PathRule `json:"missing,omitempty"` // rules for what is not there
	Rules   []profile.PathRule `json:"rules"`             // all rules by real path, also for what is not there

	set right.Paths
}

// At is what the cell may do with a real path, whether it exists or not.
func (p *Plan) At(name string) right.Access { return p.set.At(name) }

// Writable judges an entry of a difference: under a path that the profile does
// not make writable it is refused and never applied (L8).
func (p *Plan) Writable(name string) bool { return p.At(name)&right.Write != 0 }

// Make plans, or gives every refusal of L8b with the profile's line.
func Make(in Input, host Host) (*Plan, strict.Faults) {
	m := planner{in: in, host: host, plan: &Plan{}, rules: map[string]rule{}}
	m.dir = m.reals([]string{in.Profile.Dir})[0].real
	m.own = m.reals(in.Own)
	m.private = m.privatePaths()
	var links []Link
	for _, r := range in.Profile.Paths {
		links = append(links, m.add(r)...)
	}
	if m.faults != nil {
		return nil, m.faults.Sort()
	}
	m.hide()
	m.finish(links)
	m.narrows()
	if m.faults != nil {
		return nil, m.faults.Sort()
	}
	return m.plan, nil
}

// rule is a path rule at its real path.
type rule struct {
	profile.PathRule
	kind Kind
	own  bool // added by L8b
}

type planner struct {
	in      Input
	host    Host
	plan    *Plan
	dir     string          // the profile's directory, resolved
	rules   map[string]rule // by real path
	own     []resolved
	private []resolved // of kind Symlink: a path through one, to be judged but never mounted
	faults  strict.Faults
}

func (m *planner) refuse(r profile.PathRule, message, fix string) {
	f := m.in.Profile.FaultAt(r.Line, path.Base(r.At), message, fix)
	if r.File != f.File { // the rule of a profile that was laid over another
		f.File, f.Source, f.Text, f.Column = r.File, "", "", 1
	}
	m.faults = append(m.faults, f)
}

// narrows repeats what profile.Narrow did, now that symlinks are resolved: a
// repository may bring a profile for ./x and a link x that leads to a place
// which the base protects.
func (m *planner) narrows() {
	base := m.in.Profile.Base()
	if base == nil {
		return
	}
	in := m.in
	in.Profile = base
	allowed, faults := Make(in, m.host)
	if faults != nil {
		m.faults = append(m.faults, faults...)
		return
	}
	for _, r := range m.plan.Rules {
		if a := m.plan.At(r.At); a&^allowed.At(r.At) != 0 {
			m.refuse(r, fmt.Sprintf("%s (%s) is wider than %s allows", r.At, a, base.File), "remove the entry")
		}
	}
}

// reals resolves paths of ours. One that cannot be looked at is kept as it
// stands: better to hide too much.
func (m *planner) reals(names []string) []resolved {
	var out []resolved
	for _, name := range names {
		r, err := resolve(m.host, name)
		if err != nil {
			r = resolved{real: path.Clean(name)}
		}
		out = append(out, r)
	}
	return out
}

// privatePaths are the private names of every home, by real path and, where a
// symlink leads there, by the path through it too.
func (m *planner) privatePaths() []resolved {
	var out []resolved
	for i, home := range m.reals(m.in.Homes) {
		for _, name := range privateNames() {
			at := path.Join(home.real, name)
			r := m.reals([]string{at})[0]
			out = append(out, r)
			for _, other := range []string{at, path.Join(m.in.Homes[i], name)} {
				if other != r.real {
					out = append(out, resolved{real: other, kind: Symlink})
				}
			}
		}
	}
	return out
}

// add takes a rule of the profile, and gives the links on its way.
func (m *planner) add(r profile.PathRule) []Link {
	at, err := resolve(m.host, r.At)
	if err != nil {
		m.refuse(r, err.Error(), "grant a path that can be looked at")
		return nil
	}
	if at.real != r.At && m.takesAway(r) {
		// A cell may put a directory in the place of the link: what the rule
		// takes away is taken away under its own name, too.
		m.rules[r.At] = rule{PathRule: r, kind: Symlink}
		if m.leadsOut(r, at) {
			m.plan.Missing = append(m.plan.Missing, r)
			return nil // there is nothing to protect in the grant, and nothing more to grant
		}
	}
	if r.Access != 0 && !m.mayGrant(r, at) {
		return nil
	}
	if before, twice := m.rules[at.real]; twice && before.Access != r.Access {
		m.refuse(r, fmt.Sprintf("%s is %s, which line %d rules as %s", r.At, at.real, before.Line, before.Access), "keep one of the two")
		return nil
	}
	if at.kind == Absent {
		m.plan.Missing = append(m.plan.Missing, r)
	}
	r.At = at.real
	m.rules[at.real] = rule{PathRule: r, kind: at.kind}
	return at.links
}

// takesAway tells whether a rule, as written, only narrows another.
func (m *planner) takesAway(r profile.PathRule) bool {
	others := slices.DeleteFunc(right.Paths(m.in.Profile.PathRights()), func(p right.Path) bool { return p.At == r.At })
	wider, found := others.Rule(r.At)
	return found && wider.Access != r.Access && r.Access&^wider.Access == 0
}

// leadsOut tells whether a path in the profile's directory ends outside of it.
// Whoever fills the directory also makes its links, so that such a path is not
// what the profile's author named.
func (m *planner) leadsOut(r profile.PathRule, at resolved) bool {
	return right.Contains(m.in.Profile.Dir, r.At) && !right.Contains(m.dir, at.real)
}

// mayGrant is the list of what is refused (L8b, L15).
func (m *planner) mayGrant(r profile.PathRule, at resolved) bool {
	through := ""
	if at.real != r.At {
		through = " (" + at.real + ")"
	}
	for _, own := range m.own {
		if right.Contains(own.real, at.real) {
			m.refuse(r, r.At+through+" is Skep's own directory, or lies in it", "remove the entry; no cell may see it")
			return false
		}
	}
	for _, program := range m.reals(m.in.Programs) {
		if right.Contains(program.real, at.real) && r.Access&right.Write != 0 && !m.namesAround(program.real) {
			m.refuse(r, r.At+through+" holds Skep's programs, or is one of them, and cannot be writable", "grant it with rights: ro")
			return false
		}
	}
	// Whoever wrote a repository may have put a symlink where the profile's
	// author expected a directory: the author must have named the private
	// place itself.
	for _, p := range m.private {
		if p.kind != Symlink && right.Contains(p.real, at.real) && !m.namedPrivate(r.At) {
			m.refuse(r, r.At+" is a symlink to "+at.real+", which is private", "name "+at.real+" itself if you mean it")
			return false
		}
	}
	if m.leadsOut(r, at) {
		m.refuse(r, r.At+" leads out of the profile's directory, to "+at.real, "name "+at.real+" itself if you mean it")
		return false
	}
	if at.kind == Other || at.real == "/" || inKernel(at.real) {
		m.refuse(r, r.At+through+" is not a plain file or directory of the host", "grant the directories and files by name")
		return false
	}
	return true
}

// namesAround tells whether the profile makes a tree writable in which our programs
// are only a part: whoever grants that knows that it holds programs.
func (m *planner) namesAround(programs string) bool {
	return slices.ContainsFunc(m.in.Profile.Paths, func(r profile.PathRule) bool {
		at := m.reals([]string{r.At})[0].real
		return r.Access&right.Write != 0 && at != programs && right.Contains(at, programs)
	})
}

// namedPrivate tells whether a path as written is or lies in a private place.
func (m *planner) namedPrivate(written string) bool {
	return slices.ContainsFunc(m.private, func(p resolved) bool { return right.Contains(p.real, written) })
}

func inKernel(real string) bool {
	return slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(d string) bool { return right.Contains(d, real) })
}

// hide adds a rule for each place of ours and each private one that a grant
// contains. A rule that names a private place stays; ours are never named.
func (m *planner) hide() {
	granted := func(name string) bool {
		for at, r := range m.rules {
			if !r.own && r.Access != 0 && at != name && right.Contains(at, name) {
				return true
			}
		}
		return false
	}
	cover := func(p resolved, reason string) {
		if _, named := m.rules[p.real]; named || !granted(p.real) {
			return
		}
		m.rules[p.real] = rule{PathRule: profile.PathRule{Path: right.Path{At: p.real}, File: m.in.Profile.File}, kind: p.kind, own: true}
		if p.kind == Dir || p.kind == File {
			m.plan.Hidden = append(m.plan.Hidden, Hidden{p.real, reason})
		}
	}
	for _, p := range m.own {
		cover(p, "Skep's own directory")
	}
	for _, p := range m.private {
		cover(p, "private; a rule that names it shows it")
	}
	slices.SortFunc(m.plan.Hidden, func(a, b Hidden) int { return cmp.Compare(a.Path, b.Path) })
}
