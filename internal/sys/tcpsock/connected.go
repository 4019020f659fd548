package tcpsock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Connected waits until the connect that a nonblocking socket has begun is over, or f's
// write deadline: nil is a connection.
func Connected(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Write(func(fd uintptr) (done bool) {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = unix.Errno(errno)
		}
		if err == nil {
			_, err = unix.Getpeername(int(fd))
		}
		failed = err
		return !errors.Is(err, unix.ENOTCONN)
	})
	if err != nil {
		return err
	}
	return failed
}
