package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// WaitPidfd returns when the process of a pidfd has gone (pidfd_open(2): it
// becomes readable). The process need not be a child.
func WaitPidfd(pidfd *os.File) error {
	fd, err := rawFD(pidfd)
	if err != nil {
		return err
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(poll, -1)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for a process: %w", err)
		}
	}
}

// OpenPidfd holds the process that has the number now (pidfd_open(2)).
func OpenPidfd(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// KillPidfd sends SIGKILL to the process of a pidfd; one that has gone is no error.
func KillPidfd(pidfd *os.File) error {
	err := unix.PidfdSendSignal(int(pidfd.Fd()), unix.SIGKILL, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill a process: %w", err)
	}
	return nil
}
