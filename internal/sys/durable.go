package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Datasync makes the bytes of f, and the length needed to read them, durable:
// fdatasync(2). After an error the state of the file is unknown and must not be
// synced again in the hope of a better answer.
func Datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd())) //nolint:gosec // a descriptor fits
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Allocate gives f size bytes of real disk blocks: fallocate(2). It returns
// errors.ErrUnsupported where the file system cannot.
func Allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size) //nolint:gosec // a descriptor fits
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("allocate %d bytes of %s: %w", size, f.Name(), errors.ErrUnsupported)
		default:
			return err
		}
	}
}

// AllocateBeyond gives f real disk blocks for so many bytes behind its end, which stays
// where it is: fallocate(2) with FALLOC_FL_KEEP_SIZE.
func AllocateBeyond(f *os.File, size int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, st.Size(), size) //nolint:gosec // a descriptor fits
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// IsNoSpace reports whether err says that a disk or a quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
