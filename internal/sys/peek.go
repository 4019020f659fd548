package sys

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Peek tells whether a socket has something to be read, without reading it and without
// waiting: 1, or 0 at the end.
func Peek(fd int) (int, error) {
	var b [1]byte
	return PeekInto(fd, b[:])
}

// PeekInto copies into b what a socket has to be read, and leaves it there. It does not
// wait: ErrAgain; 0 is the end.
func PeekInto(fd int, b []byte) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT|unix.MSG_PEEK)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
}
