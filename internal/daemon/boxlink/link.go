// Package boxlink is skepd's side of one box: the HTTP/2 connection over the
// socket pair that the box was started with.
//
// Its laws:
//   - The pair fixes the cell: what a record says of cell and agent is ignored.
//   - Before it is assigned to a cell a box is told nothing and may record
//     nothing (B163).
//   - A record is answered when it is durable, not before (B192). What a box
//     sends becomes values of an entry, never its form.
//   - When the connection ends, the box is gone: its cell cannot reach anything
//     any more, and has to end.
package boxlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
)

// Protocol is the version of the box service.
const Protocol = 1

// MaxRecords bounds one request.
const MaxRecords = 256

// Recorder makes the records of the link's cell durable.
type Recorder interface {
	RecordFlows(ctx context.Context, cell string, records []*skepv1.FlowRecord) error
}

// Link is one box's connection.
type Link struct {
	server *http.Server
	done   chan struct{}

	watching chan struct{} // closed once the box waits for its cell
	assigned chan struct{} // closed by Assign
	ready    chan error    // one value
	finished chan struct{} // closed when the box has nothing left to write
	once     sync.Once
	close    sync.Once

	mu         sync.Mutex
	assignment *skepv1.Assignment
	recorder   Recorder
	updates    chan *skepv1.WatchResponse
	watched    bool
}

// Serve begins to serve a box on conn, which it owns from now on. options are
// those of the handlers: the strict codecs.
func Serve(conn *os.File, options ...connect.HandlerOption) (*Link, error) {
	c, err := net.FileConn(conn)
	_ = conn.Close()
	if err != nil {
		return nil, fmt.Errorf("serve box: %w", err)
	}
	l := &Link{
		done: make(chan struct{}), watching: make(chan struct{}), assigned: make(chan struct{}), ready: make(chan error, 1),
		finished: make(chan struct{}), updates: make(chan *skepv1.WatchResponse, 8),
	}
	mux := http.NewServeMux()
	mux.Handle(skepv1connect.NewBoxServiceHandler(service{l}, options...))
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	l.server = &http.Server{Handler: mux, Protocols: &protocols, ErrorLog: nil,
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed || s == http.StateHijacked {
				l.Close()
			}
		}}
	one := &single{conn: c, done: l.done}
	go func() { _ = l.server.Serve(one) }()
	return l, nil
}

// Assign gives the box its cell. It may be called once.
func (l *Link) Assign(a *skepv1.Assignment, r Recorder) {
	l.mu.Lock()
	l.assignment, l.recorder = a, r
	l.mu.Unlock()
	close(l.assigned)
}

// Watching is closed once the box has started and waits for its cell.
func (l *Link) Watching() <-chan struct{} { return l.watching }

// Ready waits until the box has answered a request under its policy.
func (l *Link) Ready(ctx context.Context) error {
	select {
	case err := <-l.ready:
		return err
	case <-l.done:
		return errors.New("the box ended before it was ready")
	case <-ctx.Done():
		return fmt.Errorf("wait for the box: %w", ctx.Err())
	}
}

// Push tells the box of changed resolvers. A box that does not take them in is
// closed: it would decide by old ones.
func (l *Link) Push(u *skepv1.ResolverUpdate) {
	l.push(&skepv1.WatchResponse{Event: &skepv1.WatchResponse_Resolver{Resolver: u}})
}

// End asks the box to end its flows and to write what is left, and waits for it
// until ctx ends.
func (l *Link) End(ctx context.Context) error {
	l.push(&skepv1.WatchResponse{Event: &skepv1.WatchResponse_End{End: &skepv1.EndOfCell{}}})
	select {
	case <-l.finished:
		return nil
	case <-l.done: // it had ended by itself, as it does with its warden: after it had written
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of the box: %w", ctx.Err())
	}
}

func (l *Link) push(r *skepv1.WatchResponse) {
	select {
	case l.updates <- r:
	default:
		l.Close()
	}
}

// Done is closed when the connection has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// Close ends the connection.
func (l *Link) Close() {
	l.close.Do(func() {
		close(l.done)
		go func() { _ = l.server.Close() }() // may be called from within the server
	})
}

// service is what the box can call.
type service struct{ *Link }

// Watch implements the box service.
func (s service) Watch(ctx context.Context, q *connect.Request[skepv1.WatchRequest], out *connect.ServerStream[skepv1.WatchResponse]) error {
	if q.Msg.Protocol != Protocol {
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("box protocol %d, this is %d", q.Msg.Protocol, Protocol))
	}
	s.mu.Lock()
	again := s.watched
	s.watched = true
	s.mu.Unlock()
	if again {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the box watches already"))
	}
	// The stream is the box's life: without it the box decides by nothing new.
	defer s.Close()
	close(s.watching)
	// The head of the answer goes ahead: with a cell, one message is left to send.
	if err := out.Send(nil); err != nil {
		return err
	}
	select {
	case <-s.assigned:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return io.ErrUnexpectedEOF
	}
	err := out.Send(&skepv1.WatchResponse{Event: &skepv1.WatchResponse_Assignment{Assignment: s.assignment}})
	for err == nil {
		select {
		case u := <-s.updates:
			err = out.Send(u)
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return nil
		}
	}
	return err
}

// Record implements the box service.
func (s service) Record(ctx context.Context, q *connect.Request[skepv1.RecordRequest]) (*connect.Response[skepv1.RecordResponse], error) {
	s.mu.Lock()
	a, r := s.assignment, s.recorder
	s.mu.Unlock()
	if a == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the box has no cell"))
	}
	if len(q.Msg.Records) > MaxRecords {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d records are more than %d", len(q.Msg.Records), MaxRecords))
	}
	if err := r.RecordFlows(ctx, a.Cell, q.Msg.Records); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(&skepv1.RecordResponse{}), nil
}

// Ready implements the box service; it hides the Link method of the same name.
func (s service) Ready(_ context.Context, q *connect.Request[skepv1.ReadyRequest]) (*connect.Response[skepv1.ReadyResponse], error) {
	switch {
	case q.Msg.Done:
		s.once.Do(func() { close(s.finished) })
	default:
		var err error
		if q.Msg.Error != "" {
			err = fmt.Errorf("the box cannot serve: %s", q.Msg.Error)
		}
		select {
		case s.ready <- err:
		default:
		}
	}
	return connect.NewResponse(&skepv1.ReadyResponse{}), nil
}

// single is a listener of one connection.
type single struct {
	mu   sync.Mutex
	conn net.Conn
	done <-chan struct{}
}

func (s *single) Accept() (net.Conn, error) {
	s.mu.Lock()
	c := s.conn
	s.conn = nil
	s.mu.Unlock()
	if c != nil {
		return c, nil
	}
	<-s.done
	return nil, net.ErrClosed
}

func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
