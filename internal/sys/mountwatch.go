package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MountWatch says whether mounts have come or gone in the mount namespace in which
// it was opened.
type MountWatch struct{ table *os.File }

// WatchMounts begins to watch.
func WatchMounts() (*MountWatch, error) {
	// A plain descriptor: the runtime's poller would take the one event that Changed
	// looks for, and os.Open gives every file to it.
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the table of mounts: %w", err)
	}
	return &MountWatch{table: os.NewFile(uintptr(fd), "mountinfo")}, nil
}

// Changed reports, without waiting, whether anything has changed since the last
// call, or since the watch began (proc_pid_mountinfo(5)).
func (w *MountWatch) Changed() (bool, error) { return polled(unix.POLLPRI, []*os.File{w.table}) }

// Close ends the watch.
func (w *MountWatch) Close() error { return w.table.Close() }
