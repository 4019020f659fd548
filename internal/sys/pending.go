package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Pending reports, without waiting, whether any of the sockets has something to
// read, or a peer that has gone.
func Pending(socks ...*os.File) (bool, error) { return polled(unix.POLLIN, socks) }

// HungUp reports whether the peer of a socket has gone, whatever it left to read.
func HungUp(sock *os.File) (bool, error) { return polled(unix.POLLRDHUP, []*os.File{sock}) }

func polled(events int16, files []*os.File) (bool, error) {
	fds := make([]unix.PollFd, 0, len(files))
	for _, f := range files {
		fd, err := rawFD(f)
		if err != nil {
			return false, err
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: events})
	}
	for {
		n, err := unix.Poll(fds, 0)
		if err == nil {
			return n > 0, nil
		}
		if err != unix.EINTR {
			return false, fmt.Errorf("poll: %w", err)
		}
	}
}
