package sys

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Unwritten reports whether nobody has f open for writing, or mapped: the kernel then
// gives its owner, who opened it to read, a lease of it (fcntl(2), F_SETLEASE). A
// filesystem without leases is never sure.
func Unwritten(f *os.File) bool {
	fd, err := rawFD(f)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	}
	runtime.KeepAlive(f)
	return err == nil
}
