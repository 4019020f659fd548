package model

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/budget"
)

// Accounts is what the gateway needs of budget.Machine.
type Accounts interface {
	// Left is what a reservation could take at this instant.
	Left(account string) budget.Amount
	Reserve(account string, amount budget.Amount) (budget.HoldID, error)
	Settle(hold budget.HoldID, actual budget.Amount) (budget.Settlement, error)
}

// Bounds of one cell's connection. What is over them is refused, not queued.
const (
	maxCalls     = 64        // calls at one time
	maxBodies    = 128 << 20 // bytes of request bodies in memory at one time
	maxHeader    = 64 << 10
	writeIdle    = 10 * time.Minute // an agent that takes no byte for so long is gone
	settleWithin = 30 * time.Second // to write the begin or the end of a call
)

// Gateway answers cells. Safe for parallel use; see New.
type Gateway struct {
	routes   atomic.Pointer[Routes]
	recorder Recorder
	accounts Accounts
	log      *slog.Logger
	run      string // distinguishes this gateway's calls from an earlier one's
	calls    atomic.Uint64
}

// New returns a gateway without routes: it refuses every call until SetRoutes. Run
// is a short text that no gateway on this ledger had before; call ids start
// with it.
func New(run string, recorder Recorder, accounts Accounts, log *slog.Logger) *Gateway {
	g := &Gateway{recorder: recorder, accounts: accounts, log: log, run: run}
	g.routes.Store(&Routes{})
	return g
}

// SetRoutes replaces the routes for calls that come later.
func (g *Gateway) SetRoutes(r Routes) error {
	if err := r.Check(); err != nil {
		return fmt.Errorf("set routes: %w", err)
	}
	g.routes.Store(&r)
	return nil
}

// ServeConn serves one cell on conn until either end closes it or ctx ends, and
// closes it. HTTP/1.1 is spoken, or HTTP/2 with prior knowledge, whichever the
// other end begins with. It returns when all its calls have been settled.
func (g *Gateway) ServeConn(ctx context.Context, conn net.Conn, cell Cell) error {
	defer conn.Close()
	if err := cell.Check(); err != nil {
		return fmt.Errorf("serve cell: %w", err)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &session{gateway: g, cell: cell}
	ln := &oneConn{conn: conn, closed: make(chan struct{})}
	srv := &http.Server{
		Handler: s, Protocols: &protocols, MaxHeaderBytes: maxHeader,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxCalls},
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	err := srv.Serve(ln)
	s.end()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve cell %s: %w", cell.ID, err)
	}
	return nil
}

// session is one connection.
type session struct {
	gateway *Gateway
	cell    Cell
	running atomic.Int64 // calls
	bodies  atomic.Int64 // bytes

	mu    sync.Mutex
	ended bool
	work  sync.WaitGroup // requests
}

// begin counts a request in; false once the connection has ended.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.work.Add(1)
	return true
}

// end waits for the requests that began.
func (s *session) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.work.Wait()
}

// oneConn is a listener with one connection; it ends when that is closed.
type oneConn struct {
	conn   net.Conn
	given  atomic.Bool
	once   sync.Once
	closed chan struct{}
}

// Accept gives the connection, then waits for its end.
func (l *oneConn) Accept() (net.Conn, error) {
	if !l.given.Swap(true) {
		return &watchedConn{Conn: l.conn, listener: l}, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

// Close ends Accept.
func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is that of the connection.
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// watchedConn tells its listener that it was closed.
type watchedConn struct {
	net.Conn
	listener *oneConn
}

// Close closes both.
func (c *watchedConn) Close() error {
	_ = c.listener.Close()
	return c.Conn.Close()
}
