package layertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/sys"
)

// Op is one thing that an agent does to its tree. Kind is one of the cases of
// do; the other fields are what that case uses.
type Op struct {
	Kind string
	Path string
	To   string // second path, target, content or attribute name
	Mode uint32
	Size int64
}

// String is the op as a person would write it.
func (o Op) String() string {
	return fmt.Sprintf("%s %q %q %o %d", o.Kind, o.Path, o.To, o.Mode, o.Size)
}

// Do performs ops on the plain tree at root; for making a base. The first
// failure ends it.
func Do(root string, ops ...Op) error {
	for _, op := range ops {
		if err := op.do(root); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	return nil
}

func (o Op) do(root string) error {
	path := filepath.Join(root, o.Path)
	// Join cleans, so a path never leaves root by name; links are followed
	// by nothing below but by writing, which is refused through one.
	switch o.Kind {
	case "mkdir":
		return errors.Join(os.Mkdir(path, 0o755), chmod(path, o.Mode))
	case "write":
		if err := writeFile(path, o.To, os.O_TRUNC); err != nil {
			return err
		}
		return chmod(path, o.Mode)
	case "append":
		return writeFile(path, o.To, os.O_APPEND)
	case "sparse":
		if err := writeFile(path, o.To, os.O_TRUNC); err != nil {
			return err
		}
		return os.Truncate(path, o.Size)
	case "remove":
		return os.Remove(path)
	case "removeall":
		return removeAll(path)
	case "rename":
		return os.Rename(path, filepath.Join(root, o.To))
	case "symlink":
		return os.Symlink(o.To, path)
	case "link":
		return os.Link(path, filepath.Join(root, o.To))
	case "chmod":
		return chmod(path, o.Mode)
	case "fifo":
		return syscall.Mkfifo(path, 0o644)
	case "mtime":
		return notLink(path, func() error { return os.Chtimes(path, time.Time{}, time.Unix(o.Size, 5)) })
	case "xattr":
		return notLink(path, func() error { return setXattr(path, o.To) })
	}
	return fmt.Errorf("no op %q", o.Kind)
}

// removeAll is not os.RemoveAll, which opens a FIFO that it may not unlink and
// then waits for ever.
func removeAll(path string) error {
	dir, err := os.OpenFile(filepath.Dir(path), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return tree.Remove(dir, filepath.Base(path))
}

func notLink(path string, do func() error) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != 0 && !info.IsDir() {
		return syscall.ELOOP
	}
	return do()
}

func chmod(path string, mode uint32) error {
	return notLink(path, func() error { return syscall.Chmod(path, mode) })
}

func writeFile(path, content string, flag int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// setXattr sets "name=value", or removes "name".
func setXattr(path, text string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	name, value, set := strings.Cut(text, "=")
	if !set {
		return sys.RemoveXattr(f, name)
	}
	return sys.SetXattr(f, name, []byte(value))
}
