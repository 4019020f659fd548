// Package way is an HTTP/2 connection that can be exchanged for another while it is in
// use, because the program at its other end is replaced or gone (cell.md, L20a).
//
// Its laws:
//   - What is new goes over the newest connection.
//   - What is under way ends where it began; then that connection is closed. Nothing is
//     asked twice.
package way

import (
	"context"
	"sync"

	"skep.dev/skep/internal/h2"
)

// Way is the connection of the moment.
type Way struct {
	mu  sync.Mutex
	now *leg
}

// leg is one connection.
type leg struct {
	conn *h2.Conn

	mu    sync.Mutex
	users int
	left  bool          // nobody new comes
	quiet chan struct{} // closed once it was left and has no users
}

// New is a way that owns conn.
func New(conn *h2.Conn) *Way { return &Way{now: newLeg(conn)} }

func newLeg(conn *h2.Conn) *leg { return &leg{conn: conn, quiet: make(chan struct{})} }

// Use gives the connection for one question, which ends with done, called once.
func (w *Way) Use() (conn *h2.Conn, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.now
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	return l.conn, l.done
}

func (l *leg) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
	l.rest()
}

// rest is for mu held.
func (l *leg) rest() {
	if l.left && l.users == 0 {
		close(l.quiet)
	}
}

// Exchange makes next the connection, which the way owns from now on. What it returns
// waits until the one before has no users any more, or ctx has ended, and closes it.
func (w *Way) Exchange(next *h2.Conn) (finish func(ctx context.Context)) {
	w.mu.Lock()
	before := w.now
	w.now = newLeg(next)
	w.mu.Unlock()
	before.mu.Lock()
	before.left = true
	before.rest()
	before.mu.Unlock()
	return func(ctx context.Context) {
		select {
		case <-before.quiet:
		case <-ctx.Done():
		}
		_ = before.conn.Close()
	}
}

// Close ends the connection.
func (w *Way) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.now.conn.Close()
}
