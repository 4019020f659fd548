package ledger

import (
	"errors"
	"fmt"
	"io"
	"os"

	"skep.dev/skep/internal/sys/durable"
)

// disk is all that the writer asks of a file system; tests put one in its
// place that tears, fills up and fails.
type disk interface {
	open(name string) (file, error)        // for writing; made if it is not there
	reserve(name string, size int64) error // a file of real blocks
	remove(name string) error              // of a reserve
	syncDir(name string) error             // makes the names in it durable
}

type file interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error // the data, and the length
	Close() error
}

// keeper is a file that can be given blocks behind its end, which nobody else then has.
type keeper interface {
	keep(size int64) error
}

type osDisk struct{}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return durable.Sync(f.File) }

func (f osFile) keep(size int64) error { return durable.AllocateBeyond(f.File, size) }

func (osDisk) open(name string) (file, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osDisk) reserve(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = durable.Allocate(f, size)
	if errors.Is(err, errors.ErrUnsupported) {
		err = writeZeros(f, size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("reserve %d bytes in %s: %w", size, name, err)
	}
	return nil
}

func writeZeros(f *os.File, size int64) error {
	zeros := make([]byte, 64<<10)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}

func (osDisk) remove(name string) error {
	err := os.Remove(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (osDisk) syncDir(name string) error { return durable.SyncDir(name) }
