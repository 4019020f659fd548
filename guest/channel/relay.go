package channel

import (
	"io"
	"net"
	"sync"
)

// Relay carries both directions until both have ended: an end of one is an end of one.
// What a has sent is read from fromA, which may hold the beginning of it already. The
// caller closes a and b.
func Relay(a net.Conn, fromA io.Reader, b net.Conn) {
	var wait sync.WaitGroup
	wait.Go(func() { _, _ = io.Copy(b, fromA); closeWrite(b) })
	wait.Go(func() { _, _ = io.Copy(a, b); closeWrite(a) })
	wait.Wait()
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = c.Close()
}
