package box

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"skep.dev/skep/internal/h2"
)

const (
	protocol   = 1       // version of the box service
	maxMessage = 4 << 20 // from the daemon, bytes
	maxReason  = 512     // bytes of a refusal that are repeated

	service  = "/skep.v1.BoxService/"
	lastFlag = 2 // of the message that ends a stream (connectrpc.com/docs/protocol)
)

// over speaks HTTP/2 with prior knowledge on a descriptor. It owns f.
func over(f *os.File) (*h2.Conn, error) {
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("use descriptor %s: %w", f.Name(), err)
	}
	return h2.New(c)
}

// link is the daemon's end as the box sees it: the box service, by the Connect
// protocol.
type link struct {
	daemon *h2.Conn
	events *h2.Stream
}

// watch opens the stream whose first message is the assignment. It blocks until
// the daemon has a cell for this box.
func (l *link) watch(ctx context.Context) (assignment, error) {
	var m writer
	m.number(1, protocol)
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m)))
	var err error
	if l.events, err = l.daemon.Post(ctx, "skepd", service+"Watch", fields("application/connect+proto", 0), append(head, m...)); err != nil {
		return assignment{}, fmt.Errorf("watch the daemon: %w", err)
	}
	if status, err := l.events.Status(); err != nil || status != "200" {
		return assignment{}, fmt.Errorf("watch the daemon: %w", errors.Join(err, refusal(status, l.events)))
	}
	e, err := l.next()
	switch {
	case err != nil:
		return assignment{}, fmt.Errorf("wait for a cell: %w", err)
	case e.assignment == nil || e.assignment.cell == "":
		return assignment{}, errors.New("wait for a cell: the first message is no assignment")
	}
	return *e.assignment, nil
}

// next takes one message of the stream: a flag, a length, and the message.
func (l *link) next() (event, error) {
	var head [5]byte
	if _, err := io.ReadFull(l.events, head[:]); err != nil {
		return event{}, fmt.Errorf("the daemon ended the stream: %w", err)
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxMessage {
		return event{}, fmt.Errorf("the daemon sent a message of %d bytes", n)
	}
	m := make([]byte, n)
	if _, err := io.ReadFull(l.events, m); err != nil {
		return event{}, fmt.Errorf("the daemon ended the stream: %w", err)
	}
	switch head[0] {
	case 0:
		return eventOf(m)
	case lastFlag:
		return event{}, fmt.Errorf("the daemon ended the stream: %.*q", maxReason, m)
	}
	return event{}, errors.New("the daemon compressed a message")
}

// follow hands resolver updates on until the cell ends, which is nil, or the
// stream breaks, which is an error: without the daemon nothing can be recorded.
func (l *link) follow(update func(names)) error {
	for {
		e, err := l.next()
		switch {
		case err != nil:
			return err
		case e.update != nil:
			update(*e.update)
		case e.end:
			return nil
		default:
			return errors.New("the daemon sent a second assignment")
		}
	}
}

// Record appends records, each a FlowRecord (B192).
func (l *link) Record(ctx context.Context, records [][]byte) error {
	var m writer
	for _, r := range records {
		m.message(1, r)
	}
	return l.call(ctx, "Record", m)
}

// ready tells the daemon that the agent may start, or why it must not (B163).
func (l *link) ready(ctx context.Context, why error) error {
	var m writer
	if why != nil {
		m.text(2, why.Error())
	}
	return l.call(ctx, "Ready", m)
}

// done tells the daemon that everything is closed and recorded.
func (l *link) done(ctx context.Context) error {
	var m writer
	m.number(1, 1)
	return l.call(ctx, "Ready", m)
}

// call makes one call whose answer says nothing but that it was done.
func (l *link) call(ctx context.Context, method string, m writer) error {
	var left time.Duration
	if end, ok := ctx.Deadline(); ok {
		left = max(time.Until(end), time.Millisecond)
	}
	s, err := l.daemon.Post(ctx, "skepd", service+method, fields("application/proto", left), m)
	if err != nil {
		return err
	}
	defer s.Close()
	status, err := s.Status()
	switch {
	case err != nil:
		return fmt.Errorf("call %s of the daemon: %w", method, err)
	case status != "200":
		return fmt.Errorf("call %s of the daemon: %w", method, refusal(status, s))
	}
	if _, err := io.Copy(io.Discard, s); err != nil {
		return fmt.Errorf("call %s of the daemon: %w", method, err)
	}
	return nil
}

// fields are those of a request by the Connect protocol.
func fields(content string, left time.Duration) []h2.Field {
	f := []h2.Field{{Name: "content-type", Value: content}, {Name: "connect-protocol-version", Value: "1"}}
	if left > 0 {
		f = append(f, h2.Field{Name: "connect-timeout-ms", Value: strconv.FormatInt(max(left.Milliseconds(), 1), 10)})
	}
	return f
}

// refusal is an answer that is no success; its body says why, as JSON.
func refusal(status string, body io.Reader) error {
	why, err := io.ReadAll(io.LimitReader(body, maxReason))
	return errors.Join(fmt.Errorf("the daemon answered %s: %q", status, why), err)
}
