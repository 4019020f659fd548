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

// OpenEntry opens what stands at a name of dir, to be read. Links are followed as long as
// they stay below dir; neither a FIFO nor a terminal holds the caller.
func OpenEntry(dir *os.File, name string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
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

// ReopenToRead opens the very object of a descriptor, such as a bare path
// descriptor, for reading, with the caller's own rights. It waits for nobody: look
// first what the object is, an open may act on a device. The caller owns the file.
func ReopenToRead(f *os.File) (*os.File, error) {
	fd, err := rawFD(f)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Name(), err)
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: f.Name(), Err: err}
	}
	return os.NewFile(uintptr(again), f.Name()), nil
}

// CanRead tells whether a descriptor was opened for reading, which no bare path
// descriptor is: its holder needs no right of its own to what it holds.
func CanRead(f *os.File) (bool, error) {
	fd, err := rawFD(f)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	return flags&unix.O_PATH == 0 && flags&unix.O_ACCMODE != unix.O_WRONLY, nil
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
