package sys

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// AskIOUring calls io_uring_setup(2) with arguments that no kernel accepts, so
// that nothing is made: only the errno tells whether the call exists.
func AskIOUring() error { return asked(unix.SYS_IO_URING_SETUP) }

// AskKeyring calls keyctl(2) with an operation that there is not.
func AskKeyring() error {
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, ^uintptr(0), 0, 0)
	return errnoOf(errno)
}

func asked(number uintptr) error {
	_, _, errno := unix.Syscall(number, 0, 0, 0)
	return errnoOf(errno)
}

func errnoOf(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// AskProcess asks by kill(2) whether this process sees, and may signal, that one.
func AskProcess(pid int) error { return unix.Kill(pid, 0) }

// askTime bounds a connect that nobody answers.
const askTime = time.Second

// AskAddress connects to an IPv4 address and hangs up. The error is connect's
// errno; EINPROGRESS says that nobody answered within a second.
func AskAddress(to netip.AddrPort) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = unix.Close(s) }()
	wait := unix.NsecToTimeval(askTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait); err != nil {
		return fmt.Errorf("bound the time of a connect: %w", err)
	}
	return unix.Connect(s, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
}

// ErrnoName is the name of an errno, such as "EROFS"; "" if err is none.
func ErrnoName(err error) string {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return ""
	}
	return unix.ErrnoName(errno)
}
