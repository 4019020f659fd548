// Package cgroups makes the parent groups of all cells, once, before the worker
// starts (L13).
//
// Its laws:
//   - A group is made below the one that this process is in, and nowhere else;
//     nothing that was there is moved, unmounted or configured.
//   - What this user may not make is not there: a limit that needs it is then
//     refused or named as not enforced, never imitated.
package cgroups

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const mayWriteAndEnter = 0o3 // W_OK|X_OK of access(2)

// name is the parent's name in every hierarchy.
const name = "skep"

// Parent is one hierarchy's parent group.
type Parent struct {
	Dir         *os.File
	Unified     bool     // cgroup v2
	Controllers []string // those that limit or count in its children
	Left        bool     // an earlier start's: groups of cells are removed there, none is made
}

// wanted are the controllers that a cell has a use for.
func wanted() []string { return []string{"memory", "pids", "cpu", "cpuacct"} }

// Make returns the parents that this process may make. None is no error: an
// ordinary user without a delegated group has none.
func Make() ([]Parent, error) {
	mounts, err := mounted("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := membership("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var parents []Parent
	for _, m := range mounts {
		within, ok := own[m.key]
		if !ok {
			continue
		}
		p, err := m.make(within)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			Close(parents)
			return nil, err
		}
		if p != nil {
			parents = append(parents, *p)
		}
	}
	return parents, nil
}

// Close closes the descriptors of parents.
func Close(parents []Parent) {
	for _, p := range parents {
		_ = p.Dir.Close()
	}
}

// Flag is how a parent is named to skep-worker: FD:v1|v2|left:CONTROLLER,...
func (p Parent) Flag(fd int) string {
	version := "v1"
	if p.Unified {
		version = "v2"
	}
	if p.Left {
		version = "left"
	}
	return fmt.Sprintf("%d:%s:%s", fd, version, strings.Join(p.Controllers, ","))
}

// hierarchy is one mounted cgroup filesystem; key is the controller list of
// /proc/self/cgroup, which is empty for version 2.
type hierarchy struct {
	at, key     string
	unified     bool
	controllers []string
}

func mounted(file string) ([]hierarchy, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	defer func() { _ = f.Close() }()
	var list []hierarchy
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup2":
			list = append(list, hierarchy{at: left[4], unified: true})
		case "cgroup":
			var controllers []string
			for _, option := range strings.Split(right[2], ",") {
				if slices.Contains(wanted(), option) {
					controllers = append(controllers, option)
				}
			}
			for _, c := range controllers {
				list = append(list, hierarchy{at: left[4], key: c, controllers: controllers})
				break
			}
		}
	}
	return list, nil
}

// membership maps each controller, and "" for version 2, to this process's group.
func membership(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("find this process's cgroups: %w", err)
	}
	own := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for _, controller := range strings.Split(fields[1], ",") {
			own[controller] = fields[2]
		}
	}
	return own, nil
}

// make makes the parent, or opens the one of an earlier start. A version 2
// group with processes of its own cannot hand controllers down (cgroups(7)): then
// it only gathers and counts.
func (h hierarchy) make(within string) (*Parent, error) {
	dir := filepath.Join(h.at, within, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the cgroup of all cells: %w", err)
	}
	// Another user's, from an earlier start in the same group, is of no use to us.
	if err := syscall.Access(dir, mayWriteAndEnter); err != nil {
		return nil, fmt.Errorf("use the cgroup of all cells: %w", err)
	}
	controllers := h.controllers
	if h.unified {
		controllers = handDown(dir)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the cgroup of all cells: %w", err)
	}
	return &Parent{Dir: f, Unified: h.unified, Controllers: controllers}, nil
}

func handDown(dir string) []string {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil
	}
	var given []string
	for _, controller := range strings.Fields(string(text)) {
		if !slices.Contains(wanted(), controller) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0); err == nil {
			given = append(given, controller)
		}
	}
	return given
}
