package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// DirStat is what decides whether a directory can be trusted.
type DirStat struct {
	UID  uint32
	Mode uint32 // permission bits with setuid, setgid and sticky
}

// OpenDir opens a directory without following a symlink in the last component
// (open(2), O_NOFOLLOW) and tells who owns it. The caller closes the file.
func OpenDir(path string) (*os.File, DirStat, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, DirStat{}, &os.PathError{Op: "open directory", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, DirStat{}, fmt.Errorf("stat directory %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), DirStat{UID: st.Uid, Mode: st.Mode & 0o7777}, nil
}

// Owner gives the owner and mode of what a path names, following no symlink in
// the last component (lstat(2)).
func Owner(path string) (DirStat, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return DirStat{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return DirStat{UID: st.Uid, Mode: st.Mode & 0o7777}, nil
}
