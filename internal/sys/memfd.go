package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const sealsOfConstant = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// SealedFile returns a memory file with the content, which nobody can change
// any more (memfd_create(2)). The caller owns it.
func SealedFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make memory file %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(content); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write memory file %s: %w", name, err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, sealsOfConstant); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("seal memory file %s: %w", name, err)
	}
	return f, nil
}

// RequireSealed fails unless f is a memory file that can neither be written
// nor shortened while it is read.
func RequireSealed(f *os.File) error {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("read the seals of %s: %w", f.Name(), err)
	}
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK) != unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK {
		return fmt.Errorf("%s is not sealed against change", f.Name())
	}
	return nil
}
