// Package durable writes what outlives the machine's stop.
//
// Its law: what a call that succeeded wrote is there afterwards, and one that failed has
// left what was there.
package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Sync makes the bytes of f, and the length needed to read them, durable:
// fdatasync(2). After an error the state of the file is unknown and must not be
// synced again in the hope of a better answer.
func Sync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd())) //nolint:gosec // a descriptor fits
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// SyncDir makes the names in a directory durable.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReplaceFile makes content what the file at path holds, durably, or leaves the file as
// it was, also when the machine stops. One caller at a time: it writes path.new first.
func ReplaceFile(path string, content []byte, mode os.FileMode) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return SyncDir(filepath.Dir(path))
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
