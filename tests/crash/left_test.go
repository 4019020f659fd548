package crash

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// left demands that no cell, and no program that was killed, has left anything. No
// cell runs when it is called.
func (r *rig) left() {
	r.t.Helper()
	var all table
	once := map[kind]bool{daemon: true, worker: true, resident: true, spareBox: true, half: true, halfPID1: true, model: true}
	if !r.await("the processes of ended cells to go", func() bool {
		all = r.processes()
		count := map[kind]int{}
		for _, p := range all {
			count[p.kind]++
			if !once[p.kind] || count[p.kind] > 1 {
				return false
			}
		}
		return true
	}) {
		for _, p := range all {
			r.t.Logf("%d, child of %d: %s, %s %q", p.pid, p.parent, p.kind, p.name, p.args)
		}
	}
	r.noDirectory(r.run("cells"))
	for _, dir := range []string{r.temp, r.Tree} {
		for _, name := range names(r, dir) {
			if dir == r.temp || strings.HasPrefix(name, ".skep") {
				r.once("%s is left in %s", name, dir)
			}
		}
	}
	r.noMount()
	r.noGroup()
	for id, c := range r.cells {
		r.onlyRecords(id, c)
	}
}

// noDirectory: a cell's run directory goes when its end is recorded.
func (r *rig) noDirectory(dir string) {
	r.t.Helper()
	for _, name := range names(r, dir) {
		r.once("%s is left in %s", name, dir)
	}
}

func names(r *rig, dir string) []string {
	r.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	list := make([]string, 0, len(entries))
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func (r *rig) noMount() {
	r.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, r.Dir) || strings.Contains(line, r.Tree) {
			r.t.Errorf("a mount is left: %s", line)
		}
	}
}

// noGroup looks for a control group of any cell that there ever was.
func (r *rig) noGroup() {
	r.t.Helper()
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // other people's groups come and go while we look
		}
		if _, ours := r.cells[d.Name()]; ours && d.IsDir() {
			r.once("a control group is left: %s", path)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// onlyRecords: of an ended cell there is its record, its log and its layer, and of one
// that is merged, dropped or failed no layer either.
func (r *rig) onlyRecords(id string, c cell) {
	r.t.Helper()
	// The last write of a record follows the word of the end (decision 0030).
	r.await("the record of cell "+id, func() bool {
		_, err := os.Lstat(r.state("cells", id, "cell.json.new"))
		return err != nil
	})
	for _, name := range names(r, r.state("cells", id)) {
		switch name {
		case "cell.json", "log":
		case "layer":
			if !c.hasLayer() {
				r.once("the layer of cell %s, which is %s, is left", id, c.State)
			}
		default:
			r.once("%s of cell %s is left", name, id)
		}
	}
}

// once reports what stays only where it is first found.
func (r *rig) once(format string, args ...any) {
	r.t.Helper()
	if text := fmt.Sprintf(format, args...); !r.told[text] {
		r.told[text] = true
		r.t.Error(text)
	}
}
