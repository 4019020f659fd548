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
	"net"
	"os"
	"sync"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/h2"
)

// Protocol is the version of the box service.
const Protocol = 1

// MaxRecords bounds one request.
const MaxRecords = limit.RecordBatch

// Recorder makes the records of the link's cell durable and leases it bytes.
type Recorder interface {
	// RecordFlows returns intents that it refused, by their index; the rest is durable.
	RecordFlows(ctx context.Context, cell string, records []*skepv1.FlowRecord) ([]*skepv1.RefusedFlow, error)
	// Lease gives bytes that the cell may carry, having carried spent; 0 is the end.
	Lease(cell string, spent int64) (int64, error)
}

// Link is one box's connection.
type Link struct {
	server *h2.Server
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
	spent      int64 // as the box told it at its end
	told       bool
}

// Serve begins to serve a box on conn, which it owns from now on.
func Serve(conn *os.File) (*Link, error) {
	c, err := net.FileConn(conn)
	_ = conn.Close()
	if err != nil {
		return nil, fmt.Errorf("serve box: %w", err)
	}
	l := &Link{
		server: h2.NewServer(c), done: make(chan struct{}), watching: make(chan struct{}), assigned: make(chan struct{}), ready: make(chan error, 1),
		finished: make(chan struct{}), updates: make(chan *skepv1.WatchResponse, 8),
	}
	go func() {
		s := &service{Link: l}
		_ = l.server.Run(s.handle, s.recordAll) // how it ended is of no interest: the box is gone
		l.Close()
	}()
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

// Finished tells whether the box has written all that was left.
func (l *Link) Finished() bool {
	select {
	case <-l.finished:
		return true
	default:
		return false
	}
}

// Spent is how many bytes of its leases the box has carried, if it told at its end.
func (l *Link) Spent() (n int64, told bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spent, l.told
}

// Done is closed when the connection has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// Close ends the connection.
func (l *Link) Close() {
	l.close.Do(func() {
		close(l.done)
		_ = l.server.Close()
	})
}
