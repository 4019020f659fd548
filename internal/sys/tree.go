package sys

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// FileStat is what fstatat(2) says of one object.
type FileStat = unix.Stat_t

// Bits of FileStat.Mode and flags for OpenBeneath, named here so that callers
// need not import the kernel's names.
const (
	ModeTypeMask = unix.S_IFMT
	ModeRegular  = unix.S_IFREG
	ModeDir      = unix.S_IFDIR
	ModeSymlink  = unix.S_IFLNK
	ModeFIFO     = unix.S_IFIFO
	ModeSocket   = unix.S_IFSOCK
	ModeChar     = unix.S_IFCHR
	ModeBlock    = unix.S_IFBLK
)

// MaxXattrBytes is the kernel's bound on one value and on one list of names
// (XATTR_SIZE_MAX, XATTR_LIST_MAX; xattr(7)).
const MaxXattrBytes = 64 << 10

// OpenBeneath opens path below dir with openat2(2). No symlink is followed, no
// magic link, no mount is crossed and nothing above dir is reached, whatever
// happens to the tree meanwhile. flags are those of os.OpenFile and O_PATH; a
// FIFO does not block. The caller owns the file.
func OpenBeneath(dir *os.File, path string, flags int, perm uint32) (*os.File, error) {
	at, err := rawFD(dir)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", path, err)
	}
	how := unix.OpenHow{
		Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS |
			unix.RESOLVE_NO_XDEV,
	}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(perm)
	}
	if flags&unix.O_PATH != 0 {
		how.Flags &^= unix.O_NONBLOCK // openat2 refuses what O_PATH ignores
	}
	for {
		fd, err := unix.Openat2(at, path, &how)
		// EAGAIN: a rename raced with the walk of "..", retry is the rule (openat2(2)).
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open beneath", Path: path, Err: err}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

// OpenDirBeneath opens the directory path below dir for listing.
func OpenDirBeneath(dir *os.File, path string) (*os.File, error) {
	return OpenBeneath(dir, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// OpenParentBeneath opens the directory that holds path, for the *At functions
// only (O_PATH), and returns the last name. path must not end in a slash.
func OpenParentBeneath(dir *os.File, path string) (parent *os.File, name string, err error) {
	up, name := ".", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		up, name = path[:i], path[i+1:]
	}
	parent, err = OpenBeneath(dir, up, unix.O_PATH|unix.O_DIRECTORY, 0)
	return parent, name, err
}

// at runs op with dir's descriptor and wraps its error with what was tried.
func at(dir *os.File, what, name string, op func(fd int) error) error {
	fd, err := rawFD(dir)
	if err == nil {
		for {
			if err = op(fd); !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	if err != nil {
		return &os.PathError{Op: what, Path: name, Err: err}
	}
	return nil
}

// StatAt stats name in dir without following a symlink.
func StatAt(dir *os.File, name string) (FileStat, error) {
	var st FileStat
	err := at(dir, "stat", name, func(fd int) error {
		return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	return st, err
}

// StatFile stats an open file.
func StatFile(f *os.File) (FileStat, error) {
	var st FileStat
	err := at(f, "stat", f.Name(), func(fd int) error { return unix.Fstat(fd, &st) })
	return st, err
}

// PinnedAt reports whether name in dir is immutable or append-only, so that
// nobody could remove it (chattr(1)). False where the filesystem cannot say.
func PinnedAt(dir *os.File, name string) (bool, error) {
	var st unix.Statx_t
	err := at(dir, "statx", name, func(fd int) error {
		return unix.Statx(fd, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	})
	return st.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0, err
}

// ReadlinkAt returns the target of the symlink name in dir, as bytes.
func ReadlinkAt(dir *os.File, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n := 0
	err := at(dir, "readlink", name, func(fd int) error {
		var err error
		n, err = unix.Readlinkat(fd, name, buf)
		return err
	})
	return string(buf[:n]), err
}

// MkdirAt makes the directory name in dir; the umask applies.
func MkdirAt(dir *os.File, name string, perm uint32) error {
	return at(dir, "mkdir", name, func(fd int) error { return unix.Mkdirat(fd, name, perm) })
}

// SymlinkAt makes the symlink name in dir.
func SymlinkAt(target string, dir *os.File, name string) error {
	return at(dir, "symlink", name, func(fd int) error { return unix.Symlinkat(target, fd, name) })
}

// LinkAt gives the object oldName in dir the second name newName there.
func LinkAt(dir *os.File, oldName, newName string) error {
	return at(dir, "link", newName, func(fd int) error { return unix.Linkat(fd, oldName, fd, newName, 0) })
}

// UnlinkAt removes name from dir, which must not be a directory.
func UnlinkAt(dir *os.File, name string) error {
	return at(dir, "unlink", name, func(fd int) error { return unix.Unlinkat(fd, name, 0) })
}

// RmdirAt removes the empty directory name from dir.
func RmdirAt(dir *os.File, name string) error {
	return at(dir, "rmdir", name, func(fd int) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
}

// RenameNewAt renames and refuses to replace anything (RENAME_NOREPLACE).
func RenameNewAt(from *os.File, old string, to *os.File, name string) error {
	return renameAt(from, old, to, name, unix.RENAME_NOREPLACE)
}

// ExchangeAt swaps two objects in one step (RENAME_EXCHANGE).
func ExchangeAt(from *os.File, old string, to *os.File, name string) error {
	return renameAt(from, old, to, name, unix.RENAME_EXCHANGE)
}

func renameAt(from *os.File, old string, to *os.File, name string, flags uint) error {
	return at(to, "rename", name, func(fd int) error {
		src, err := rawFD(from)
		if err != nil {
			return err
		}
		return unix.Renameat2(src, old, fd, name, flags)
	})
}

// ChmodAt sets the mode bits of name in dir and refuses a symlink. The kernel
// follows symlinks here before fchmodat2, so the object is looked at first: use
// it only where no other process can swap name.
func ChmodAt(dir *os.File, name string, perm uint32) error {
	return at(dir, "chmod", name, func(fd int) error {
		err := unix.Fchmodat(fd, name, perm, unix.AT_SYMLINK_NOFOLLOW)
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
			return err
		}
		var st FileStat
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return unix.ELOOP
		}
		return unix.Fchmodat(fd, name, perm, 0)
	})
}

// ChownFile gives an open file to uid and gid.
func ChownFile(f *os.File, uid, gid uint32) error {
	return at(f, "chown", f.Name(), func(fd int) error { return unix.Fchown(fd, int(uid), int(gid)) })
}

// ChownAt gives name in dir, not what it points to, to uid and gid.
func ChownAt(dir *os.File, name string, uid, gid uint32) error {
	return at(dir, "chown", name, func(fd int) error {
		return unix.Fchownat(fd, name, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW)
	})
}

// SetModTimeAt sets the modification time of name in dir and keeps its access
// time.
func SetModTimeAt(dir *os.File, name string, mtime time.Time) error {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime.UnixNano())}
	return at(dir, "set time", name, func(fd int) error {
		return unix.UtimesNanoAt(fd, name, ts, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// ListXattrs returns the names of f's extended attributes; none where the
// filesystem has no such thing.
func ListXattrs(f *os.File) ([]string, error) {
	buf := make([]byte, 1<<10)
	n := 0
	list := func(fd int) (err error) {
		n, err = unix.Flistxattr(fd, buf)
		return err
	}
	err := at(f, "list attributes", f.Name(), list)
	if errors.Is(err, unix.ERANGE) {
		buf = make([]byte, MaxXattrBytes)
		err = at(f, "list attributes", f.Name(), list)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil || n == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00"), nil
}

// GetXattr returns the value of one extended attribute of f; found is false
// where there is none.
func GetXattr(f *os.File, name string) (value []byte, found bool, err error) {
	buf := make([]byte, MaxXattrBytes)
	n := 0
	err = at(f, "read attribute "+name, f.Name(), func(fd int) (err error) {
		n, err = unix.Fgetxattr(fd, name, buf)
		return err
	})
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return append([]byte(nil), buf[:n]...), true, nil
}

// SetXattr sets one extended attribute of f.
func SetXattr(f *os.File, name string, value []byte) error {
	return at(f, "set attribute "+name, f.Name(), func(fd int) error { return unix.Fsetxattr(fd, name, value, 0) })
}

// RemoveXattr removes one extended attribute of f; none is no error.
func RemoveXattr(f *os.File, name string) error {
	err := at(f, "remove attribute "+name, f.Name(), func(fd int) error { return unix.Fremovexattr(fd, name) })
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

// NextData returns the bounds of the next region of f at or after offset that
// holds data; start equals end where only a hole follows. A filesystem without
// holes answers one region (lseek(2)).
func NextData(f *os.File, offset, size int64) (start, end int64, err error) {
	err = at(f, "seek data", f.Name(), func(fd int) (err error) {
		start, err = unix.Seek(fd, offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			start, end = size, size
			return nil
		}
		if err != nil {
			return err
		}
		end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
		return err
	})
	return start, end, err
}

// SyncFilesystem writes out the filesystem that f lies on (syncfs(2)).
func SyncFilesystem(f *os.File) error {
	return at(f, "sync filesystem", f.Name(), unix.Syncfs)
}

// LockExclusive takes a flock(2) on f, waiting for it. It ends with the last
// descriptor of f, so also with the process.
func LockExclusive(f *os.File) error {
	return at(f, "lock", f.Name(), func(fd int) error { return unix.Flock(fd, unix.LOCK_EX) })
}

// TryLockExclusive is LockExclusive without the wait; held is false where
// another open file has the lock.
func TryLockExclusive(f *os.File) (held bool, err error) {
	err = at(f, "lock", f.Name(), func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
