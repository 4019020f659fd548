package boundary

import (
	"net"

	"skep.dev/skep/internal/flow"
)

// Arrival is one attempt as its route holds it: how it is refused, and what carries the
// flow once its destination was reached. One of the two is called, once.
type Arrival interface {
	// Refuse answers and ends it. detail is the RFC 9209 error type, empty for the
	// reason's own.
	Refuse(why flow.Reason, detail string)
	// Open says that the destination was reached. The connection is the caller's; of a
	// UDP flow each read and each write is one whole payload.
	Open() net.Conn
}

// Connected is a connection whose handshake the kernel has ended: it cannot be answered
// any more, only reset (B18).
type Connected struct{ Conn net.Conn }

// Refuse resets it.
func (c Connected) Refuse(flow.Reason, string) { Reset(c.Conn) }

// Open is the connection itself.
func (c Connected) Open() net.Conn { return c.Conn }

// Reset ends a connection so that its peer sees a reset, not an end of file (B18).
func Reset(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
