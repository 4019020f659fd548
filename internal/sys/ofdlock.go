package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked is returned by [LockFile] when another open file holds the lock.
var ErrLocked = errors.New("locked by another program")

// LockFile takes the write lock of the whole of f, or fails at once. The lock
// belongs to the open file (fcntl_locking(2), open file description locks): it
// ends when the last descriptor of it is closed, also by kill -9. f must be
// open for writing.
func LockFile(f *os.File) error {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return ErrLocked
	}
	return err
}

// FileIsLocked reports whether another open file holds the write lock of f. It
// takes no lock, so it never makes [LockFile] fail elsewhere.
func FileIsLocked(f *os.File) (bool, error) {
	l := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil {
		return false, err
	}
	return l.Type != unix.F_UNLCK, nil
}
