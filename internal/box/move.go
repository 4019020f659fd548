package box

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/lifeline"
)

var errUnknownOrder = errors.New("an order that this box does not know")

// obey carries out skepd's orders until the lifeline ends: a box without it has no
// skepd any more.
func (b *box) obey(ctx context.Context) error {
	for {
		order, file, err := lifeline.Next(b.lifeline)
		if err == nil {
			err = lifeline.Answer(b.lifeline, b.carryOut(ctx, order, file))
		}
		if err != nil {
			return fmt.Errorf("follow the lifeline: %w", err)
		}
	}
}

func (b *box) carryOut(ctx context.Context, order lifeline.Order, file *os.File) error {
	switch order {
	case lifeline.Move:
		return b.link.move(ctx, file)
	case lifeline.Model, lifeline.HandOver, lifeline.Keep, lifeline.Part:
	}
	if file != nil {
		_ = file.Close()
	}
	return errUnknownOrder
}

// line is one connection to skepd. The box has one, and while it moves to the next also
// the one before, until that has answered what was asked on it.
type line struct {
	daemon *h2.Conn
	events *h2.Stream

	mu    sync.Mutex
	calls int // without an answer
	left  bool
	quiet chan struct{} // closed once it was left and nothing waits for it
}

func newLine(daemon *h2.Conn) *line { return &line{daemon: daemon, quiet: make(chan struct{})} }

// watch asks for the stream of events; its first message is next's to wait for.
func (l *line) watch(ctx context.Context) (err error) {
	var m writer
	m.number(1, protocol)
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m)))
	if l.events, err = l.daemon.Post(ctx, "skepd", service+"Watch", fields("application/connect+proto", 0), append(head, m...)); err != nil {
		return fmt.Errorf("watch the daemon: %w", err)
	}
	return nil
}

// leave ends a call.
func (l *line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	l.rest()
}

// rest is for mu held.
func (l *line) rest() {
	if l.left && l.calls == 0 {
		close(l.quiet)
	}
}

// current is the line for what is new.
func (l *link) current() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// enter begins a call on the current line, which stays until leave.
func (l *link) enter() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.mu.Lock()
	defer l.now.mu.Unlock()
	l.now.calls++
	return l.now
}

func (l *link) close() { _ = l.current().daemon.Close() }

// move makes f the way to skepd, which it owns. It returns when everything that was
// asked on the way before has its answer, and that one is closed: so nothing is asked
// twice. Nobody need read f yet.
func (l *link) move(ctx context.Context, f *os.File) error {
	daemon, err := over(f)
	if err != nil {
		return err
	}
	next := newLine(daemon)
	if err := next.watch(ctx); err != nil {
		_ = daemon.Close()
		return err
	}
	l.mu.Lock()
	before := l.now
	l.now = next
	l.mu.Unlock()
	before.mu.Lock()
	before.left = true
	before.rest()
	before.mu.Unlock()
	select {
	case <-before.quiet:
	case <-ctx.Done(): // the box ends
	}
	_ = before.daemon.Close()
	return nil
}
