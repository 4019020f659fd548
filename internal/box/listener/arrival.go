package listener

import (
	"bufio"
	"io"
	"net"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/tunnel"
)

const (
	answerTime  = time.Second // for an answer of ours to be taken
	lingerBytes = 64 << 10    // read behind a refusal, so that it arrives
)

// arrival is one request whose head was read.
type arrival struct {
	conn      net.Conn
	transport flow.Transport
}

// Refuse answers and closes. A reason that is only recorded is a close (B64).
func (a arrival) Refuse(why flow.Reason, detail string) { refuse(a.conn, why, detail) }

func refuse(c net.Conn, why flow.Reason, detail string) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(answerTime))
	if why.Status() == 0 {
		return
	}
	if _, err := io.WriteString(c, tunnel.Refused(why, detail)); err != nil {
		return
	}
	// A TCP socket that is closed with unread bytes resets, and takes the answer along.
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
		_, _ = io.CopyN(io.Discard, t, lingerBytes)
	}
}

// Open answers that the destination was reached. A client that has gone meanwhile is
// found by whoever relays.
func (a arrival) Open() net.Conn {
	_ = a.conn.SetDeadline(time.Now().Add(answerTime))
	if _, err := io.WriteString(a.conn, tunnel.Accepted(a.transport)); err != nil {
		_ = a.conn.Close()
	}
	_ = a.conn.SetDeadline(time.Time{})
	if a.transport == flow.UDP {
		return &payloads{Conn: a.conn, in: tunnel.NewDatagrams(bufio.NewReader(a.conn))}
	}
	return a.conn
}

// payloads is a tunnel of connect-udp as a connection of which each read and each write
// is one UDP payload (RFC 9298).
type payloads struct {
	net.Conn
	in *tunnel.Datagrams

	mu  sync.Mutex
	out []byte
}

func (p *payloads) Read(b []byte) (int, error) {
	payload, err := p.in.Next()
	if err != nil {
		return 0, err
	}
	return copy(b, payload), nil
}

func (p *payloads) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = tunnel.AppendDatagram(p.out[:0], b)
	if _, err := p.Conn.Write(p.out); err != nil {
		return 0, err
	}
	return len(b), nil
}
