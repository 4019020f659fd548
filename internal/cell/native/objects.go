package native

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"skep.dev/skep/internal/cell"
)

// object is what is mounted at one path: a grant, or the place of single files
// that may be written. A file that is mounted cannot be replaced by rename, so
// that they are copies in a directory of their own (decision 20), where nothing
// of the host's directory shows.
type object struct {
	cell.Grant
	place bool   // Path is where single files stand, which Layer has as its base
	open  bool   // of a place: it is the files' own directory, which the agent may write
	from  string // of a file whose directory is not ours to replace: what to mount over it
}

// aside tells whether a place is mounted away from its directory.
func (o object) aside() bool { return o.place && !o.open }

// asideDir is where files stand whose directory shows something else.
const asideDir = "/.skep/files"

// objectsOf lists what is to be mounted from the outside in: a mount below another
// one must come after it.
func objectsOf(spec *cell.Spec) []object {
	var objects []object
	places := map[string][]cell.Grant{}
	for _, g := range spec.Grants {
		if g.Writable && !g.Dir {
			places[path.Dir(g.Path)] = append(places[path.Dir(g.Path)], g)
		} else {
			objects = append(objects, object{Grant: g})
		}
	}
	for dir, files := range places {
		place := object{Grant: cell.Grant{Path: dir, Dir: true, Layer: files[0].Layer}, place: true, open: free(dir, spec)}
		if !place.open {
			place.Path = fmt.Sprintf("%s/%d", asideDir, len(objects))
			for _, f := range files {
				objects = append(objects, object{Grant: f, from: place.Path + "/" + path.Base(f.Path)})
			}
		}
		objects = append(objects, place)
	}
	slices.SortFunc(objects, func(a, b object) int { return strings.Compare(a.Path, b.Path) })
	return objects
}

// free tells whether nothing else of the cell is to be seen in a directory: no
// grant shows it, and no directory of the cell's own is or lies in it.
func free(dir string, spec *cell.Spec) bool {
	for _, own := range []string{"/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/var/tmp", spec.HomePath} {
		if within(own, dir) {
			return false
		}
	}
	shown, hidden := 0, 0
	for _, g := range spec.Grants {
		if g.Dir && within(dir, g.Path) {
			shown = max(shown, len(g.Path))
		}
	}
	for _, n := range spec.Narrow {
		if n.Kind == cell.Hidden && within(dir, n.Path) {
			hidden = max(hidden, len(n.Path))
		}
	}
	return shown == 0 || hidden > shown
}

func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// innermost is the directory of the list that holds a path, the longest of
// several; nil if none does.
func innermost(p string, objects []object) (in *object) {
	for i := range objects {
		if o := &objects[i]; o.Dir && p != o.Path && within(p, o.Path) && (in == nil || len(o.Path) > len(in.Path)) {
			in = o
		}
	}
	return in
}
