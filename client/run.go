package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
)

// The headers by which a call brings its own greeting: the versions of the contract that
// the caller speaks, as 1-2, and the state directory that it means, escaped as a path of
// a URL. A daemon that does not fit refuses the call.
const (
	HeaderAPI   = "Skep-Api"
	HeaderState = "Skep-State"
)

// ErrNotSent means that nobody listens: nothing was sent, and nothing was done.
var ErrNotSent = errors.New("no skepd listens")

// maxEvent bounds one message of the daemon's, in bytes.
const maxEvent = 8 << 20

// Events is the answer to Run or Follow. It is the caller's to close.
type Events struct {
	conn net.Conn
	body *bufio.Reader
	stop func() bool
	msg  *skepv1.CellEvent
	over bool
	err  error
}

// Run calls Run at a socket, with its greeting, on a connection of its own. It is the
// generated client's call without what that needs for many calls at a time, since a
// person waits for it (docs/benchmarks.md). Errors have the codes of Connect.
func Run(ctx context.Context, socket, state string, q *skepv1.RunRequest) (*Events, error) {
	return events(ctx, socket, state, skepv1connect.SkepRunProcedure, q)
}

// Follow calls Follow, as Run does: with the events of a cell whose Run ended because
// skepd was replaced.
func Follow(ctx context.Context, socket, state, cell string) (*Events, error) {
	return events(ctx, socket, state, skepv1connect.SkepFollowProcedure, &skepv1.FollowRequest{Cell: cell})
}

func events(ctx context.Context, socket, state, procedure string, q proto.Message) (*Events, error) {
	message, err := proto.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, unavailable(fmt.Errorf("%w: %w", ErrNotSent, err))
		}
		e := &Events{conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.Close() })}
		if err = e.open(state, procedure, message); err == nil {
			return e, nil
		}
		e.Close()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, errAgain):
			return nil, err
		}
	}
}

var errAgain = errors.New("skepd is being replaced")

// open sends the request and reads the head of the answer, which comes with the first event.
func (e *Events) open(state, procedure string, message []byte) error {
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	q, err := http.NewRequest(http.MethodPost, "http://skepd"+procedure, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header = http.Header{
		"Content-Type": {"application/connect+proto"}, "Connect-Protocol-Version": {"1"}, "User-Agent": {"skep"},
		HeaderAPI: {fmt.Sprintf("%d-%d", APIMin, APIMax)}, HeaderState: {url.PathEscape(state)},
	}
	if err := q.Write(e.conn); err != nil {
		return unavailable(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(e.conn), q) //nolint:bodyclose // which would read to the end; the connection is closed
	if err != nil {
		return unavailable(err)
	}
	if r.Header.Get(HeaderAgain) != "" {
		return errAgain
	}
	e.body = bufio.NewReader(r.Body)
	if r.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(e.body, 1<<10))
		return connect.NewError(connect.CodeUnknown, fmt.Errorf("skepd answered %s: %s", r.Status, bytes.TrimSpace(said)))
	}
	return nil
}

func unavailable(err error) error { return connect.NewError(connect.CodeUnavailable, err) }

// Receive waits for the next event; false at the end, and with an error.
func (e *Events) Receive() bool {
	if !e.over {
		e.msg, e.err = e.next()
		e.over = e.msg == nil
	}
	return !e.over
}

// next reads one message; none at the end.
func (e *Events) next() (*skepv1.CellEvent, error) {
	var head [5]byte
	if _, err := io.ReadFull(e.body, head[:]); err != nil {
		return nil, unavailable(fmt.Errorf("skepd ended the answer: %w", err))
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxEvent {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("skepd sent a message of %d bytes", n))
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(e.body, raw); err != nil {
		return nil, unavailable(fmt.Errorf("skepd ended the answer: %w", err))
	}
	switch head[0] {
	case 0:
		m := &skepv1.CellEvent{}
		if err := proto.Unmarshal(raw, m); err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
		return m, nil
	case 2: // the last message (connectrpc.com/docs/protocol)
		return nil, endOf(raw)
	}
	return nil, connect.NewError(connect.CodeInternal, errors.New("skepd compressed a message"))
}

// endOf is what the last message says: nil where all went well.
func endOf(raw []byte) error {
	var end struct {
		Error *struct {
			Code    connect.Code `json:"code"`
			Message string       `json:"message"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(raw, &end); {
	case err != nil:
		return connect.NewError(connect.CodeInternal, fmt.Errorf("read the end of the answer: %w", err))
	case end.Error != nil:
		return connect.NewError(end.Error.Code, errors.New(end.Error.Message))
	}
	return nil
}

// Msg is the event that the last Receive waited for.
func (e *Events) Msg() *skepv1.CellEvent { return e.msg }

// Err is why Receive said false; nil at the end.
func (e *Events) Err() error { return e.err }

// Close ends the call. The cell goes on.
func (e *Events) Close() {
	e.stop()
	_ = e.conn.Close()
}
