package listener

import (
	"errors"
	"io"
	"syscall"

	"skep.dev/skep/internal/sys"
)

// headReader reads one request head from a socket, and not a byte of what follows: it
// looks at what is there and takes only what belongs to the head. So the bytes behind
// it are held by the kernel, within the socket's own bound, and go upstream with the
// rest (B34). It ends after an empty line, which ends a head and nothing else.
type headReader struct {
	socket syscall.RawConn
	line   int  // bytes of the line that was begun
	only   byte // the one byte of a line of one byte
	ended  bool
}

func (h *headReader) Read(b []byte) (int, error) {
	if h.ended {
		return 0, io.EOF
	}
	n := 0
	var failed error
	err := h.socket.Read(func(fd uintptr) bool {
		n, failed = sys.PeekInto(int(fd), b)
		if errors.Is(failed, sys.ErrAgain) {
			return false
		}
		if failed == nil && n > 0 {
			n, failed = sys.Receive(int(fd), b[:h.take(b[:n])])
		}
		return true
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// take is how many bytes of b belong to the head.
func (h *headReader) take(b []byte) int {
	for i, c := range b {
		if c != '\n' {
			h.line++
			h.only = c
			continue
		}
		if h.line == 0 || h.line == 1 && h.only == '\r' {
			h.ended = true
			return i + 1
		}
		h.line = 0
	}
	return len(b)
}
