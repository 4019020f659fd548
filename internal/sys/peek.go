package sys

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Peek tells whether a socket has something to be read, without reading it and without
// waiting: 1, or 0 at the end.
func Peek(fd int) (int, error) {
	var b [1]byte
	for {
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT|unix.MSG_PEEK)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
}
