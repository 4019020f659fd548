// Package pause stops loops that read sockets, and lets them go on or end: for the time
// in which a box hands its sockets over (cell.md, L20a).
//
// Its laws:
//   - A loop that is stopped reads nothing: what comes waits in its socket.
//   - Stop returns when every loop has stopped, and what it had taken is dealt with.
package pause

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Socket is what a loop reads.
type Socket interface {
	SetReadDeadline(t time.Time) error
}

// Pause is that of all loops of a box.
type Pause struct {
	mu      sync.Mutex
	loops   map[Socket]bool // whether it has stopped
	held    chan struct{}   // closed when the loops may go on; nil while they run
	pauses  int             // so far
	over    bool            // they end
	changed chan struct{}
}

// New has no loops yet.
func New() *Pause { return &Pause{loops: map[Socket]bool{}, changed: make(chan struct{}, 1)} }

// Loop runs read, which reads s until an error, and again after each pause. It returns
// nil if the pause was the end, else what read returned.
func (p *Pause) Loop(s Socket, read func() error) error {
	defer p.drop(s)
	for {
		before := p.runs(s)
		err := read()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		switch held, pauses := p.stopped(s); {
		case held != nil:
			<-held
		case pauses == before: // somebody else's deadline
			return err
		}
		if p.Over() {
			return nil
		}
	}
}

// runs notes a loop that reads, and tells how many pauses there were before.
func (p *Pause) runs(s Socket) (pauses int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loops[s] = false
	if p.held != nil { // it begins in a pause
		_ = s.SetReadDeadline(time.Now())
		return p.pauses - 1
	}
	return p.pauses
}

func (p *Pause) drop(s Socket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.loops, s)
	p.tell()
}

// stopped is what a loop waits for, nil where nobody stops it now, and how many pauses
// there were.
func (p *Pause) stopped(s Socket) (held <-chan struct{}, pauses int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.loops[s] = true
		p.tell()
	}
	return p.held, p.pauses
}

// tell is for mu held.
func (p *Pause) tell() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Over tells whether the loops have ended by a pause.
func (p *Pause) Over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// Stop returns when all loops have stopped. After an error they run.
func (p *Pause) Stop(ctx context.Context) error {
	p.mu.Lock()
	if p.held != nil || p.over {
		p.mu.Unlock()
		return errors.New("stop reading: it is stopped already")
	}
	p.held = make(chan struct{})
	p.pauses++
	for s := range p.loops {
		if err := s.SetReadDeadline(time.Now()); err != nil {
			p.mu.Unlock()
			p.Go()
			return fmt.Errorf("stop reading: %w", err)
		}
	}
	for {
		all := true
		for _, stopped := range p.loops {
			all = all && stopped
		}
		p.mu.Unlock()
		if all {
			return nil
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			p.Go()
			return fmt.Errorf("stop reading: %w", ctx.Err())
		}
		p.mu.Lock()
	}
}

// Go lets the loops go on.
func (p *Pause) Go() { p.release(false) }

// End lets them end.
func (p *Pause) End() { p.release(true) }

func (p *Pause) release(over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		return
	}
	p.over = over
	for s := range p.loops {
		_ = s.SetReadDeadline(time.Time{})
	}
	close(p.held)
	p.held = nil
}
