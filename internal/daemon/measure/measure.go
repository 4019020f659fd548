// Package measure says how much a cell wrote.
//
// Its laws:
//   - It only looks; what it may not see it does not count, and says so where a
//     number would be a lie.
//   - A layer is hostile content: while its cell lives, a process of the cell's ids
//     looks (S12a); afterwards names are counted beneath open directories, through
//     no link, and no file is opened.
package measure

import (
	"errors"
	"io"
	"os"
	"strconv"

	"skep.dev/skep/internal/sys"
)

const (
	// mostCounted bounds what the end of a cell spends on its summary.
	mostCounted = 100_000
	// deepest is how many directories it holds open at once.
	deepest = 64
)

// Changed counts the files in the layers of an ended cell, each a numbered
// directory, whiteouts included; -1 if there are too many, or some that we may not
// see.
func Changed(layers string) int64 {
	dir, _, err := sys.OpenDir(layers)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		return -1
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return -1
	}
	c := counter{}
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue // a home and other directories that no difference shows
		}
		if err := c.below(dir, name+"/upper", 0); err != nil {
			return -1
		}
	}
	return c.files
}

type counter struct{ files int64 }

var errNotCounted = errors.New("not counted")

func (c *counter) below(parent *os.File, name string, depth int) error {
	if depth > deepest {
		return errNotCounted
	}
	dir, err := sys.OpenDirBeneath(parent, name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	for {
		entries, err := dir.ReadDir(1024)
		for _, e := range entries {
			if !e.IsDir() {
				if c.files++; c.files > mostCounted {
					return errNotCounted
				}
			} else if err := c.below(dir, e.Name(), depth+1); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
