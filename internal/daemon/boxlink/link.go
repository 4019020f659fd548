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
//     any more, and has to end. A box that was told to move has left it, and is
//     heard on the new one: nothing that it sent is heard twice.
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
	"skep.dev/skep/internal/lifeline"
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
	// Draft puts a rule that the cell's agent asks for to a person; "" where too many are open.
	Draft(cell string, q *skepv1.DraftRequest) (card string, err error)
	// Asked is what became of a card of the cell: pending, granted, denied; "" where it has none of that id.
	Asked(cell, card string) string
	// UseSecret makes durable that a secret of the cell is used, or was misused.
	UseSecret(cell string, q *skepv1.UseSecretRequest) error
}

// Link is one box's connection. It lives on while the connection is exchanged for
// another (Move), and of a box it is the one thing that says that it is gone (Done).
type Link struct {
	lifeline *lifeline.Asker
	done     chan struct{}

	watching chan struct{} // closed once the box waits for its cell
	assigned chan struct{} // closed by Assign
	ready    chan error    // one value
	trusted  chan []byte   // one value: what the cell is to trust
	finished chan struct{} // closed when the box has nothing left to write
	once     sync.Once
	close    sync.Once

	mu         sync.Mutex
	now        *service // of the connection that is served, or was last
	moving     bool     // the box is about to leave that connection, or has left it
	lost       bool     // meanwhile it ended
	assignment *skepv1.Assignment
	names      *skepv1.ResolverUpdate // as the box should have them
	policy     *skepv1.BoxPolicy      // likewise; nil while it is that of the assignment
	ending     bool                   // the box is asked to end
	recorder   Recorder
	spent      int64 // as the box told it at its end
	told       bool
}

// Serve begins to serve a box on conn, and to give it orders over line. It owns both.
func Serve(conn, line *os.File) (*Link, error) {
	l := newLink(line)
	return l, l.serve(conn, false)
}

func newLink(line *os.File) *Link {
	l := &Link{
		lifeline: lifeline.NewAsker(line),
		done:     make(chan struct{}), watching: make(chan struct{}), assigned: make(chan struct{}), ready: make(chan error, 1), trusted: make(chan []byte, 1), finished: make(chan struct{}),
	}
	go func() {
		l.lifeline.Run()
		l.Close()
	}()
	return l
}

// serve reads conn until it ends. A box that moved to it knows its cell, and is told
// what it may have missed.
func (l *Link) serve(conn *os.File, moved bool) error {
	c, err := net.FileConn(conn)
	_ = conn.Close()
	if err != nil {
		l.Close()
		return fmt.Errorf("serve box: %w", err)
	}
	s := &service{Link: l, server: h2.NewServer(c), moved: moved, updates: make(chan *skepv1.WatchResponse, 8)}
	l.mu.Lock()
	l.now, l.moving, l.lost = s, false, false
	if moved && l.names != nil {
		l.push(resolvers(l.names))
	}
	if moved && l.policy != nil {
		l.push(swap(l.policy))
	}
	if moved && l.ending {
		l.push(end())
	}
	l.mu.Unlock()
	select {
	case <-l.done: // closed meanwhile, with the connection before this one
		_ = s.server.Close()
	default:
	}
	go func() {
		_ = s.server.Run(s.handle, s.recordAll) // how it ended is of no interest: the box is gone, or has moved
		l.ended(s)
	}()
	return nil
}

// ended takes the end of a connection, which is that of the box unless it moves.
func (l *Link) ended(s *service) {
	l.mu.Lock()
	gone := s == l.now && !l.moving
	l.lost = l.lost || s == l.now
	l.mu.Unlock()
	_ = s.server.Close()
	if gone {
		l.Close()
	}
}

// Assign gives the box its cell. It may be called once.
func (l *Link) Assign(a *skepv1.Assignment, r Recorder) {
	l.mu.Lock()
	l.assignment, l.recorder = a, r
	if l.names == nil {
		l.names = a.GetResolver()
	}
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

// Push tells the box of changed resolvers.
func (l *Link) Push(u *skepv1.ResolverUpdate) {
	l.tell(resolvers(u), func() { l.names = u })
}

// Swap makes p the policy of the box (B160).
func (l *Link) Swap(p *skepv1.BoxPolicy) {
	l.tell(swap(p), func() { l.policy = p })
}

// tell sends a message, and keeps what a box that moves is told again. A box that does
// not take it in is closed: it would decide by what was before.
func (l *Link) tell(m *skepv1.WatchResponse, keep func()) {
	l.mu.Lock()
	keep()
	taken := l.push(m)
	l.mu.Unlock()
	if !taken {
		l.Close()
	}
}

// End asks the box to end its flows and to write what is left, and waits for it
// until ctx ends.
func (l *Link) End(ctx context.Context) error {
	l.tell(end(), func() { l.ending = true })
	select {
	case <-l.finished:
		return nil
	case <-l.done: // it had ended by itself, as it does with its warden: after it had written
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of the box: %w", ctx.Err())
	}
}

// push says whether the box takes the message, or will be told when it is served
// again. It is for mu held.
func (l *Link) push(r *skepv1.WatchResponse) bool {
	if l.moving && l.lost {
		return true
	}
	select {
	case l.now.updates <- r:
		return true
	default:
		return false
	}
}

func resolvers(u *skepv1.ResolverUpdate) *skepv1.WatchResponse {
	return &skepv1.WatchResponse{Event: &skepv1.WatchResponse_Resolver{Resolver: u}}
}

func swap(p *skepv1.BoxPolicy) *skepv1.WatchResponse {
	return &skepv1.WatchResponse{Event: &skepv1.WatchResponse_Policy{Policy: p}}
}

func end() *skepv1.WatchResponse {
	return &skepv1.WatchResponse{Event: &skepv1.WatchResponse_End{End: &skepv1.EndOfCell{}}}
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
		l.lifeline.Close()
		l.mu.Lock()
		s := l.now
		l.mu.Unlock()
		if s != nil {
			_ = s.server.Close()
		}
	})
}
