package pathplan

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Kind is what a path names on the host.
type Kind int

// The kinds; a symlink is followed.
const (
	Absent Kind = iota
	Dir
	File
	Symlink
	Other // a socket, a FIFO, a device: never granted (L15)
)

// Host is how the planner sees the file system. Both calls follow no symlink
// in the last component. An absent path is Absent without an error.
type Host interface {
	Lstat(path string) (Kind, error)
	Readlink(path string) (string, error)
}

// OS is the real file system.
type OS struct{}

// Lstat is os.Lstat.
func (OS) Lstat(name string) (Kind, error) {
	fi, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Absent, nil
	case err != nil:
		return Absent, err
	}
	switch fi.Mode().Type() {
	case 0:
		return File, nil
	case fs.ModeDir:
		return Dir, nil
	case fs.ModeSymlink:
		return Symlink, nil
	}
	return Other, nil
}

// Readlink is os.Readlink.
func (OS) Readlink(name string) (string, error) { return os.Readlink(name) }

// Link is a symlink that a granted path leads through. Where it lies in no
// grant, the cell's root needs one like it, so that the path works inside.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"` // as it stands in the link
}

type resolved struct {
	real  string
	kind  Kind
	links []Link
}

const maxLinks = 40 // as the kernel counts (path_resolution(7))

// resolve follows every symlink of a clean absolute path. From the first
// component that is absent, the rest is taken as it stands.
func resolve(host Host, name string) (resolved, error) {
	out := resolved{real: "/", kind: Dir}
	rest := strings.Split(strings.Trim(name, "/"), "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			out.real = path.Dir(out.real) // real has no symlink left, so this is its parent
			continue
		}
		next := path.Join(out.real, part)
		kind, err := host.Lstat(next)
		if err != nil {
			return resolved{}, fmt.Errorf("look at %s: %w", next, err)
		}
		switch kind {
		case Symlink:
			target, err := host.Readlink(next)
			if err != nil {
				return resolved{}, fmt.Errorf("read the link %s: %w", next, err)
			}
			out.links = append(out.links, Link{next, target})
			if len(out.links) > maxLinks {
				return resolved{}, fmt.Errorf("resolve %s: more than %d symlinks", name, maxLinks)
			}
			if strings.HasPrefix(target, "/") {
				out.real = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
			continue
		case Absent:
			return resolved{real: path.Join(next, path.Join(rest...)), kind: Absent, links: out.links}, nil
		}
		out.real, out.kind = next, kind
		if kind != Dir && len(rest) > 0 {
			return resolved{real: path.Join(next, path.Join(rest...)), kind: Absent, links: out.links}, nil
		}
	}
	return out, nil
}
