package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Locked returns n bytes of memory that are never swapped out nor written into a core
// (mlock(2), MADV_DONTDUMP), outside of the garbage collector's; an error where the
// process may not lock that much. Unlock gives them back.
func Locked(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, max(n, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("make memory: %w", err)
	}
	if err = unix.Mlock(b); err == nil {
		err = unix.Madvise(b, unix.MADV_DONTDUMP)
	}
	if err != nil {
		_ = unix.Munmap(b)
		return nil, fmt.Errorf("lock %d bytes of memory: %w", n, err)
	}
	return b[:n], nil
}

// Unlock overwrites what Locked returned, and gives it back. Nobody may use it any more.
func Unlock(b []byte) {
	b = b[:cap(b)]
	clear(b)
	_ = unix.Munmap(b)
}
