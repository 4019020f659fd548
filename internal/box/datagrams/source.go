package datagrams

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
)

// source is one address and port of the cell: the boundary.Arrival of its flow, and a
// connection of which each read and each write is one payload.
type source struct {
	socket *net.UDPConn
	from   netip.AddrPort
	server *Server
	in     chan []byte

	refused bool // the flow; told before it returns
	end     sync.Once
	over    chan struct{}
}

// put keeps a copy of a payload where there is room.
func (s *source) put(payload []byte) {
	n := int64(len(payload))
	if s.server.waiting.Add(n) > maxBytes {
		s.server.waiting.Add(-n)
		return
	}
	select {
	case s.in <- append([]byte(nil), payload...):
	default:
		s.server.waiting.Add(-n)
	}
}

// drain gives the room of what nobody reads any more to others. Nothing is put any more.
func (s *source) drain() {
	for {
		select {
		case payload := <-s.in:
			s.server.waiting.Add(-int64(len(payload)))
		default:
			return
		}
	}
}

// Refuse implements boundary.Arrival: nothing is answered, and nothing has left.
func (s *source) Refuse(flow.Reason, string) { s.refused = true }

// Open implements boundary.Arrival.
func (s *source) Open() net.Conn { return s }

// Read waits for the next payload.
func (s *source) Read(b []byte) (int, error) {
	select {
	case payload := <-s.in:
		s.server.waiting.Add(-int64(len(payload)))
		return copy(b, payload), nil
	case <-s.over:
		return 0, io.EOF
	}
}

// Write sends one payload to the cell, as from where it wrote to.
func (s *source) Write(b []byte) (int, error) {
	select {
	case <-s.over:
		return 0, net.ErrClosed
	default:
		return s.socket.WriteToUDPAddrPort(b, s.from)
	}
}

// Close ends the flow; the socket is of all flows.
func (s *source) Close() error {
	s.end.Do(func() { close(s.over) })
	return nil
}

// LocalAddr is the box's own end.
func (s *source) LocalAddr() net.Addr { return s.socket.LocalAddr() }

// RemoteAddr is the source.
func (s *source) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(s.from) }

// SetDeadline implements net.Conn: there are none.
func (s *source) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn.
func (s *source) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn.
func (s *source) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
