package native

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/worker/proto"
)

// hiddenSize is room for mount points and nothing else, in bytes.
const hiddenSize = 64 << 10

// tree collects the steps of a cell and the descriptors that they name.
type tree struct {
	steps []proto.Step
	files []*os.File
	// mounted are the host's mount points.
	mounted []string
}

func (t *tree) add(s proto.Step, files ...*os.File) {
	if at := slices.Index(t.files, first(files)); len(files) == 1 && at >= 0 {
		s.FD = at
	} else if len(files) > 0 {
		s.FD = len(t.files)
		t.files = append(t.files, files...)
	}
	t.steps = append(t.steps, s)
}

func first(files []*os.File) *os.File {
	if len(files) == 0 {
		return nil
	}
	return files[0]
}

// make adds a step that makes something outside of the grants. In the place of
// single files it is made in the layer of that place; what stands in any other
// grant is never made: nothing is created on the host's side, nor in a layer
// that the difference shows (L9).
func (t *tree) make(s proto.Step, objects []object) {
	in := innermost(s.Path, objects)
	switch {
	case in == nil:
		t.add(s)
	case in.place:
		s.Path, s.Own = "/lower"+strings.TrimPrefix(s.Path, in.Path), true
		t.add(s, in.Layer)
	}
}

// request says what the worker is to build. The order is that of the package's law.
// own are the names of the files in spec.Size.
func request(spec *cell.Spec, own, mounted []string) (*proto.Build, []*os.File) {
	t := tree{mounted: mounted}
	files := append(append([]cell.File(nil), spec.Files...), processorFiles(spec.Limits)...)
	objects := objectsOf(spec)
	skeleton(&t, spec, files, objects)
	granted(&t, objects, spec.Narrow)
	for _, c := range spec.Covers {
		t.add(proto.Step{Op: proto.OpCover, Path: c.Path, Target: c.File, ReadOnly: true, NoExec: true, File: true})
	}
	covers(&t, spec.Size, own)
	keys(&t, spec.Keys)
	b := &proto.Build{
		Cell: spec.ID, Hostname: spec.Hostname, Argv: spec.Argv, Env: spec.Env, Dir: spec.Dir,
		Stdio: spec.Stdio != nil, Steps: t.steps, Limits: proto.Limits(spec.Limits),
	}
	if spec.Terminal != nil {
		b.Terminal = &proto.Size{Rows: spec.Terminal.Rows, Columns: spec.Terminal.Columns}
	}
	return b, t.files
}

// conflict names what a cell's own directories make impossible.
func conflict(spec *cell.Spec) error {
	for _, g := range spec.Grants {
		if g.Dir && spec.HomePath != "" && strings.HasPrefix(spec.HomePath, g.Path+"/") {
			return fmt.Errorf("the cell's home %s cannot stand within the granted %s: grant directories below it", spec.HomePath, g.Path)
		}
	}
	return nil
}

// skeleton makes every directory that a mount needs, outside of grants, the
// generated files, and what the places of single files hold.
func skeleton(t *tree, spec *cell.Spec, files []cell.File, objects []object) {
	t.add(proto.Step{Op: proto.OpDir, Path: "/tmp", Mode: 0o755})
	t.add(proto.Step{Op: proto.OpBind, Path: "/tmp", Writable: true, Private: true}, spec.Tmp)
	if spec.Home != nil && spec.HomePath != "" {
		t.add(proto.Step{Op: proto.OpDir, Path: spec.HomePath, Mode: 0o755})
		t.add(proto.Step{Op: proto.OpBind, Path: spec.HomePath, Writable: true, Private: true}, spec.Home)
	}
	t.add(proto.Step{Op: proto.OpTmpfs, Path: "/dev/shm", Mode: 0o1777, Size: uint64(spec.ShmSize), Writable: true})
	// A grant below /tmp or the home has its mount point in the layer.
	dirs := map[string]bool{"/.skep/empty": true, "/run": true, "/var/tmp": true}
	taken := map[string]bool{}
	for _, o := range objects {
		taken[o.Path] = true
		if o.Dir {
			dirs[o.Path] = true
		} else {
			dirs[path.Dir(o.Path)] = true
		}
	}
	for _, d := range slices.Sorted(maps.Keys(dirs)) {
		if d != "/" {
			t.make(proto.Step{Op: proto.OpDir, Path: d, Mode: 0o755}, objects)
		}
	}
	for _, o := range objects {
		if !o.Dir {
			t.make(proto.Step{Op: proto.OpFile, Path: o.Path, Mode: 0o644}, objects)
		}
	}
	for _, l := range spec.Links {
		t.make(proto.Step{Op: proto.OpSymlink, Path: l.Path, Target: l.Target}, objects)
	}
	for _, f := range files {
		if !taken[f.Path] {
			t.make(proto.Step{Op: proto.OpFile, Path: f.Path, Mode: 0o444, Data: f.Content}, objects)
		}
	}
}

// sizeDir is where the files stand that show a cell its own size.
const sizeDir = "/.skep/proc"

// covers shows the cell its own size in files of /proc (L13b).
func covers(t *tree, dir *os.File, names []string) {
	if len(names) == 0 {
		return
	}
	t.add(proto.Step{Op: proto.OpDir, Path: sizeDir, Mode: 0o755})
	t.add(proto.Step{Op: proto.OpBind, Path: sizeDir, ReadOnly: true, NoExec: true, Private: true}, dir)
	for _, name := range names {
		t.add(proto.Step{Op: proto.OpCover, Path: "/proc/" + name, Target: sizeDir + "/" + name, ReadOnly: true, NoExec: true})
	}
}

// keys shows the cell the socket of an ssh-agent that is ours (L15).
func keys(t *tree, dir *os.File) {
	if dir == nil {
		return
	}
	t.add(proto.Step{Op: proto.OpDir, Path: cell.KeysDir, Mode: 0o755})
	t.add(proto.Step{Op: proto.OpBind, Path: cell.KeysDir, ReadOnly: true, NoExec: true, Private: true}, dir)
}

// grant mounts one object; later are those that follow it.
func grant(t *tree, o object, later []object) {
	foreign, shown := plain(o.Grant, t.mounted)
	switch {
	case o.place:
		t.add(proto.Step{Op: proto.OpOverlay, Path: o.Path, Writable: o.open, Own: true}, o.Layer)
	case o.from != "":
		t.add(proto.Step{Op: proto.OpCover, Path: o.Path, Target: o.from, Writable: true, File: true})
	case o.Writable && o.Dir:
		t.add(proto.Step{Op: proto.OpOverlay, Path: o.Path, Writable: true}, o.Object, o.Layer)
	case o.Dir && !shown:
		t.add(proto.Step{Op: proto.OpOverlay, Path: o.Path, ReadOnly: true}, o.Object)
	default:
		t.add(proto.Step{Op: proto.OpBind, Path: o.Path, ReadOnly: true, File: !o.Dir}, o.Object)
		for _, at := range foreign { // an ordinary user's bind takes them along
			narrow(t, cell.Narrow{Path: at, Kind: cell.Hidden}, later)
		}
	}
}

// granted mounts the grants and what narrows them, each after all that is above
// it: a narrower rule holds under a wider one, whichever of the two gives more.
func granted(t *tree, objects []object, narrows []cell.Narrow) {
	for _, o := range objects {
		if o.aside() {
			grant(t, o, nil)
		}
	}
	objects = slices.DeleteFunc(slices.Clone(objects), object.aside)
	// What is hidden may be the place of files that are not.
	before := func(o object, n cell.Narrow) bool { return o.Path < n.Path || o.Path == n.Path && !o.place }
	done := 0
	for _, n := range slices.SortedStableFunc(slices.Values(narrows), func(a, b cell.Narrow) int { return strings.Compare(a.Path, b.Path) }) {
		for done < len(objects) && before(objects[done], n) {
			done++
			grant(t, objects[done-1], objects[done:])
		}
		narrow(t, n, objects[done:])
	}
	for i, o := range objects[done:] {
		grant(t, o, objects[done+i+1:])
	}
	if slices.ContainsFunc(objects, func(o object) bool { return o.from != "" }) {
		t.add(proto.Step{Op: proto.OpHide, Path: asideDir}) // each file is where it belongs, and there alone
	}
}

// narrow enforces a rule below a grant by a mount. What is not there needs none.
// A hidden directory under which something is granted is an empty one with that
// mount point.
func narrow(t *tree, n cell.Narrow, later []object) {
	switch n.Kind {
	case cell.ReadOnly:
		t.add(proto.Step{Op: proto.OpSelf, Path: n.Path, ReadOnly: true, Optional: true})
	case cell.Hidden:
		if !slices.ContainsFunc(later, func(o object) bool { return strings.HasPrefix(o.Path, n.Path+"/") }) {
			t.add(proto.Step{Op: proto.OpHide, Path: n.Path})
			return
		}
		t.add(proto.Step{Op: proto.OpTmpfs, Path: n.Path, Mode: 0o555, Size: hiddenSize})
		for _, o := range later {
			if !strings.HasPrefix(o.Path, n.Path+"/") || innermost(o.Path, later) != nil {
				continue
			}
			if o.Dir {
				t.add(proto.Step{Op: proto.OpDir, Path: o.Path, Mode: 0o555})
			} else {
				t.add(proto.Step{Op: proto.OpFile, Path: o.Path, Mode: 0o444})
			}
		}
	case cell.MountPoint:
		t.add(proto.Step{Op: proto.OpSelf, Path: n.Path, Optional: true})
	}
}
