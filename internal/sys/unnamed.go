package sys

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PidOf is the number of the process that a pidfd holds, in this pid namespace
// (proc(5), fdinfo). One that has gone is an error.
func PidOf(pidfd *os.File) (int, error) {
	fd, err := rawFD(pidfd)
	if err != nil {
		return 0, err
	}
	info, err := os.Open(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, fmt.Errorf("look at a pidfd: %w", err)
	}
	defer info.Close()
	for lines := bufio.NewScanner(info); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			if err == nil && pid > 0 {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("look at a pidfd: %w", unix.ESRCH)
}

// Unnamed is a regular file that has no name any more.
type Unnamed struct {
	Dev, Ino uint64
	Bytes    int64 // that it holds
}

// UnnamedFile looks at descriptor number fd of a process through its directory
// /proc/PID/fd. ok is true of a regular file without a name on the filesystem of
// device disk, or in an overlay. No server of a filesystem is waited for (statx(2),
// AT_STATX_DONT_SYNC).
func UnnamedFile(fds *os.File, fd string, disk uint64) (file Unnamed, ok bool) {
	at, err := rawFD(fds)
	if err != nil {
		return file, false
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(at, fd, target)
	if err != nil || !strings.HasSuffix(string(target[:n]), " (deleted)") {
		return file, false // the name is cheap to ask for
	}
	var st unix.Statx_t
	const want = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS
	err = unix.Statx(at, fd, unix.AT_STATX_DONT_SYNC, want, &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 0 {
		return file, false
	}
	file = Unnamed{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino, Bytes: int64(st.Blocks)*512 + InodeSize}
	if file.Dev == disk {
		return file, true
	}
	var fs unix.Statfs_t
	err = unix.Statfs(fmt.Sprintf("/proc/self/fd/%d/%s", at, fd), &fs)
	return file, err == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// InodeSize is what an inode counts for beside its blocks, in bytes: a filesystem has
// only so many, and an empty file takes one.
const InodeSize = 4096

// Filesystem is what one filesystem has, in bytes and inodes. One that makes inodes as
// it needs them has none here.
type Filesystem struct {
	Bytes, FreeBytes   int64 // free: what an ordinary user can still take
	Inodes, FreeInodes int64
	Taken              int64 // bytes, by whomever
}

// FilesystemOf looks at the filesystem of a path.
func FilesystemOf(path string) (Filesystem, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return Filesystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return Filesystem{
		Bytes: int64(fs.Blocks) * int64(fs.Bsize), FreeBytes: int64(fs.Bavail) * int64(fs.Bsize),
		Inodes: int64(fs.Files), FreeInodes: int64(fs.Ffree), Taken: int64(fs.Blocks-fs.Bfree) * int64(fs.Bsize),
	}, nil
}

// Used is how many bytes are taken, by whomever, with [InodeSize] for each inode.
func (f Filesystem) Used() int64 { return f.Taken + (f.Inodes-f.FreeInodes)*InodeSize }
