package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Left finds parents of an earlier start, elsewhere, that still have the group of a
// cell: whoever starts skepd after a crash may be in another group than who started
// it before, as each login is. cells is the directory whose entries are named by
// cells that may have left something; where it is empty nothing is looked for.
// What cannot be read or written is not ours to remove.
func Left(cells string, made []Parent) ([]Parent, error) {
	entries, err := os.ReadDir(cells)
	if len(entries) == 0 {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	mounts, err := mounted("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	known := make([]string, 0, len(made))
	for _, p := range made {
		known = append(known, p.Dir.Name())
	}
	var found []Parent
	for _, m := range mounts {
		found = append(found, m.left(ids, known)...)
	}
	return found, nil
}

// left looks below one mount.
func (h hierarchy) left(ids, known []string) []Parent {
	var found []Parent
	_ = filepath.WalkDir(h.at, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && d != nil && d.IsDir():
			return fs.SkipDir // groups go while we look
		case err != nil || !d.IsDir() || d.Name() != name:
			return nil
		case slices.Contains(known, path) || !hasAny(path, ids):
			return fs.SkipDir
		}
		if f, err := os.Open(path); err == nil {
			found = append(found, Parent{Dir: f, Unified: h.unified, Left: true})
		}
		return fs.SkipDir
	})
	return found
}

// hasAny tells whether a parent has the group of one of the cells.
func hasAny(parent string, ids []string) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		info, err := os.Lstat(filepath.Join(parent, id))
		return err == nil && info.IsDir()
	})
}
