package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenChild opens one entry of a directory by its plain name, never through a
// link (openat2(2)). flags are those of open(2); the caller owns the file.
func OpenChild(dir *os.File, name string, flags int) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	if err != nil {
		return nil, fmt.Errorf("open %s in %s: %w", name, dir.Name(), err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// MakeChild makes a directory in a directory; one that is there already is an error.
func MakeChild(dir *os.File, name string, mode uint32) error {
	if err := unix.Mkdirat(int(dir.Fd()), name, mode); err != nil {
		return fmt.Errorf("make %s in %s: %w", name, dir.Name(), err)
	}
	return nil
}

// RemoveChild removes an empty directory of a directory.
func RemoveChild(dir *os.File, name string) error {
	if err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("remove %s in %s: %w", name, dir.Name(), err)
	}
	return nil
}

// InheritedPlace wraps a descriptor of a directory that this process was started
// with, which may be a mere place (O_PATH), and makes it close-on-exec. The file
// owns the descriptor.
func InheritedPlace(fd int, name string) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("inherit descriptor %d as %s: %w", fd, name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Flags of OpenChild, as open(2) has them.
const (
	ReadOnly  = unix.O_RDONLY
	WriteOnly = unix.O_WRONLY
	Directory = unix.O_DIRECTORY
	PathOnly  = unix.O_PATH
)

// OpenPath opens a name for what it is, following links, without reading it
// (O_PATH). It is for programs that act with their own user's rights.
func OpenPath(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
