package box

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/box/way"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/flow/limit"
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
	daemon     *way.Way
	recordHead h2.Head

	numbers func() writer // what is told beside records; nil tells nothing

	mu     sync.Mutex
	events *h2.Stream // of the connection of the moment
}

func newLink(daemon *h2.Conn) *link {
	r := h2.Request{Method: "POST", Authority: "skepd", Path: service + "Record", Fields: fields("application/proto", 0)}
	return &link{daemon: way.New(daemon), recordHead: h2.NewHead(r)}
}

// watch opens the stream whose first message is the assignment. It blocks until
// the daemon has a cell for this box.
func (l *link) watch(ctx context.Context) (assignment, error) {
	daemon, done := l.daemon.Use()
	defer done()
	events, err := events(ctx, daemon)
	if err != nil {
		return assignment{}, err
	}
	l.mu.Lock()
	l.events = events
	l.mu.Unlock()
	e, err := next(events)
	switch {
	case err != nil:
		return assignment{}, fmt.Errorf("wait for a cell: %w", err)
	case e.assignment == nil || e.assignment.cell == "":
		return assignment{}, errors.New("wait for a cell: the first message is no assignment")
	}
	return *e.assignment, nil
}

// next takes one message of the stream: a flag, a length, and the message.
func next(events *h2.Stream) (event, error) {
	if status, err := events.Status(); err != nil || status != "200" {
		return event{}, fmt.Errorf("watch the daemon: %w", errors.Join(err, refusal(status, events)))
	}
	var head [5]byte
	if _, err := io.ReadFull(events, head[:]); err != nil {
		return event{}, fmt.Errorf("the daemon ended the stream: %w", err)
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxMessage {
		return event{}, fmt.Errorf("the daemon sent a message of %d bytes", n)
	}
	m := make([]byte, n)
	if _, err := io.ReadFull(events, m); err != nil {
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

// follow hands on resolver updates and policies until the cell ends, which is nil, or the
// stream breaks, which is an error: without the daemon nothing can be recorded.
func (l *link) follow(update func(names), swap func(given) error) error {
	now := l.current()
	for {
		e, err := next(now)
		switch after := l.current(); {
		case err != nil && after != now: // we have moved
			now = after
		case err != nil:
			return err
		case e.update != nil:
			update(*e.update)
		case e.policy != nil:
			if err := swap(*e.policy); err != nil {
				return err
			}
		case e.end:
			return nil
		default:
			return errors.New("the daemon sent a second assignment")
		}
	}
}

// Record appends records, each a FlowRecord (B192), and tells what the daemon has
// answered: the intents that have no room, by their place.
func (l *link) Record(records [][]byte, tell func(map[int]flow.Reason, error)) error {
	size := 0
	for _, r := range records {
		size += len(r) + 2*binary.MaxVarintLen32
	}
	m := make(writer, 0, size)
	for _, r := range records {
		m.message(1, r)
	}
	if l.numbers != nil {
		m.message(2, l.numbers())
	}
	daemon, done := l.daemon.Use()
	err := daemon.Call(l.recordHead, m, func(a h2.Answer) {
		done()
		err := a.Err
		if err == nil && a.Status != "200" {
			err = refusal(a.Status, bytes.NewReader(a.Body))
		}
		switch {
		case err != nil:
			tell(nil, fmt.Errorf("call Record of the daemon: %w", err))
		case len(a.Body) == 0:
			tell(nil, nil)
		default:
			tell(refused(a.Body, len(records)))
		}
	})
	if err != nil {
		done()
	}
	return err
}

// refused reads a RecordResponse for n records.
func refused(answer []byte, n int) (map[int]flow.Reason, error) {
	r, out := reader{}, map[int]flow.Reason{}
	r.fields(answer, func(f field) {
		index, why := uint64(0), flow.Busy
		r.fields(r.message(f), func(f field) {
			switch f.number {
			case 1:
				index = r.number(f, uint64(n-1))
			case 2:
				if r.text(f) == flow.RateLimited.Token() {
					why = flow.RateLimited
				}
			default:
				r.unknown("a refused flow", f)
			}
		})
		out[int(index)] = why
	})
	return out, r.err
}

// Lease asks for bytes to carry, having carried spent so far; 0 is the end of the
// budget. It implements boundary.Lender.
func (l *link) Lease(ctx context.Context, spent int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, boundary.RecordWait)
	defer cancel()
	var m writer
	m.number(1, uint64(max(spent, 0)))
	answer, err := l.call(ctx, "Lease", m)
	if err != nil {
		return 0, err
	}
	r, n := reader{}, uint64(0)
	r.fields(answer, func(f field) { n = r.number(f, limit.MaxLease) })
	return int64(n), r.err
}

// ready tells the daemon that the agent may start, or why it must not (B163).
func (l *link) ready(ctx context.Context, why error) error {
	var m writer
	if why != nil {
		m.text(2, why.Error())
	}
	_, err := l.call(ctx, "Ready", m)
	return err
}

// done tells the daemon that everything is closed and recorded, and how many bytes of
// its leases were carried.
func (l *link) done(ctx context.Context, spent int64) error {
	var m writer
	m.number(1, 1)
	m.number(3, uint64(max(spent, 0)))
	_, err := l.call(ctx, "Ready", m)
	return err
}

// call makes one call and gives the message that answers it.
func (l *link) call(ctx context.Context, method string, m writer) ([]byte, error) {
	var left time.Duration
	if end, ok := ctx.Deadline(); ok {
		left = max(time.Until(end), time.Millisecond)
	}
	daemon, done := l.daemon.Use()
	defer done()
	s, err := daemon.Post(ctx, "skepd", service+method, fields("application/proto", left), m)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	status, err := s.Status()
	switch {
	case err != nil:
		return nil, fmt.Errorf("call %s of the daemon: %w", method, err)
	case status != "200":
		return nil, fmt.Errorf("call %s of the daemon: %w", method, refusal(status, s))
	}
	answer, err := io.ReadAll(io.LimitReader(s, maxMessage))
	if err != nil {
		return nil, fmt.Errorf("call %s of the daemon: %w", method, err)
	}
	return answer, nil
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
