// Package measure says how much a cell wrote.
//
// Its law: it only looks; what it may not see it does not count, and says so where
// a number would be a lie.
package measure

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// Usage adds the blocks of all files below dir. What the agent closed to us
// is not counted: it is the agent's own to fill, within the host's quota.
func Usage(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile, or closed to us
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += st.Blocks * 512
		}
		return nil
	})
	return bytes
}

// mostCounted bounds what the end of a cell spends on its summary.
const mostCounted = 10_000

// Changed counts the files in the layers of a cell, each a numbered directory,
// whiteouts included; -1 if there are too many, or some that we may not see.
func Changed(layers string) (n int64) {
	uppers, err := filepath.Glob(filepath.Join(layers, "[0-9]*", "upper"))
	if err != nil {
		return -1
	}
	for _, upper := range uppers {
		err := filepath.WalkDir(upper, func(_ string, e fs.DirEntry, err error) error {
			if err != nil || n > mostCounted {
				return errNotCounted
			}
			if !e.IsDir() {
				n++
			}
			return nil
		})
		if err != nil {
			return -1
		}
	}
	return n
}

var errNotCounted = errors.New("not counted")
