package tree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/sys"
)

// maxHeld is how many directories Remove holds open at once. What lies deeper
// is first moved up beside the root of the removal, so that a tree of any
// depth can be removed with few descriptors.
const maxHeld = 32

// Remove removes name and everything below it from dir, which must be a
// directory that nobody else works in. Directories without permission bits are
// given some first. Nothing there is no error.
func Remove(dir *os.File, name string) error {
	r := remover{root: dir}
	r.deep = append(r.deep, name)
	for len(r.deep) > 0 {
		next := r.deep[len(r.deep)-1]
		r.deep = r.deep[:len(r.deep)-1]
		if err := r.remove(dir, next, 0); err != nil {
			return fmt.Errorf("remove %q: %w", name, err)
		}
	}
	return nil
}

// Empty removes everything in dir and leaves dir itself.
func Empty(dir *os.File) error {
	list, err := sys.OpenDirBeneath(dir, ".")
	if err != nil {
		return err
	}
	defer list.Close()
	names, err := Names(list)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := Remove(dir, name); err != nil {
			return err
		}
	}
	return nil
}

type remover struct {
	root  *os.File
	deep  []string // names in root that are still to be removed
	moved int
}

func (r *remover) remove(dir *os.File, name string, depth int) error {
	st, err := sys.StatAt(dir, name)
	if Missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if TypeOf(&st) != snapshot.Dir {
		return sys.UnlinkAt(dir, name)
	}
	if st.Mode&0o700 != 0o700 {
		if err := sys.ChmodAt(dir, name, 0o700); err != nil {
			return err
		}
	}
	if depth >= maxHeld {
		return r.moveUp(dir, name)
	}
	if err := r.empty(dir, name, depth); err != nil {
		return err
	}
	return sys.RmdirAt(dir, name)
}

// empty removes what is in a directory. It lists again until a list is empty:
// removing while listing may skip names on some filesystems.
func (r *remover) empty(dir *os.File, name string, depth int) error {
	f, err := sys.OpenDirBeneath(dir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := f.Readdirnames(4096)
		if errors.Is(err, io.EOF) || (err == nil && len(names) == 0) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.remove(f, name, depth+1); err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
		}
	}
}

// moveUp puts a deep directory beside the root of the removal, for later.
func (r *remover) moveUp(dir *os.File, name string) error {
	for {
		r.moved++
		up := ".skep-remove-" + strconv.Itoa(r.moved)
		err := sys.RenameNewAt(dir, name, r.root, up)
		if errors.Is(err, syscall.EEXIST) {
			continue
		}
		if err == nil {
			r.deep = append(r.deep, up)
		}
		return err
	}
}
