package boxlink

import (
	"context"
	"errors"
	"fmt"
	"os"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/sys"
)

var errMoves = errors.New("the box is moving already")

// Move has the box leave its connection for a new one (L20a): what it has under way it
// finishes on the old one first. The file is our end of the new one, which nobody reads
// until Resume; with Lifeline it is what another skepd needs of the box. Until then
// what the box sends waits, and Done tells nothing of a box that dies.
//
// After an error nothing has changed, but that a box which was only late may move
// still: then it is served there.
func (l *Link) Move(ctx context.Context) (*os.File, error) {
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	l.mu.Lock()
	busy := l.moving
	l.moving = true
	l.mu.Unlock()
	if busy {
		_ = ours.Close()
		return nil, errMoves
	}
	answer, err := l.lifeline.Begin(ctx, lifeline.Move, theirs)
	if err == nil {
		select {
		case err = <-answer:
		case <-ctx.Done():
			go func() {
				if l.left(<-answer) == nil {
					_ = l.Resume(ours)
				} else {
					_ = ours.Close()
				}
			}()
			return nil, fmt.Errorf("wait until the box has moved: %w", ctx.Err())
		}
	}
	if err := l.left(err); err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("move the connection of a box: %w", err)
	}
	return ours, nil
}

// left takes the box's word on whether it has left its connection.
func (l *Link) left(why error) error {
	l.mu.Lock()
	s, gone := l.now, why != nil && l.lost
	l.moving, l.lost = why == nil, why == nil
	l.mu.Unlock()
	switch {
	case gone:
		l.Close()
	case why == nil:
		_ = s.server.Close() // so that a box which stays there all the same is not heard
	}
	return why
}

// Resume serves a box on the connection that it moved to, which it owns from now on.
func (l *Link) Resume(conn *os.File) error { return l.serve(conn, true) }

// Model has the box speak to the model gateway over conn from now on, which stays the
// caller's. What is under way ends where it began.
func (l *Link) Model(ctx context.Context, conn *os.File) error {
	if err := l.lifeline.Ask(ctx, lifeline.Model, conn); err != nil {
		return fmt.Errorf("give a box another gateway: %w", err)
	}
	return nil
}

// HandOver has the box stop accepting and give all that it serves to the box that has the
// other end of heir as its warden's socket. heir stays the caller's. Until Keep or Part
// nobody serves the cell but that other box.
func (l *Link) HandOver(ctx context.Context, heir *os.File) error {
	if err := l.lifeline.Ask(ctx, lifeline.HandOver, heir); err != nil {
		return fmt.Errorf("have a box hand its cell over: %w", err)
	}
	return nil
}

// Keep has the box go on as before HandOver.
func (l *Link) Keep(ctx context.Context) error {
	if err := l.lifeline.Ask(ctx, lifeline.Keep); err != nil {
		return fmt.Errorf("have a box keep its cell: %w", err)
	}
	return nil
}

// Part has the box end when the last flow that it has is over: the other box serves.
func (l *Link) Part(ctx context.Context) error {
	if err := l.lifeline.Ask(ctx, lifeline.Part); err != nil {
		return fmt.Errorf("have a box leave its cell: %w", err)
	}
	return nil
}

// Forward has the box deliver what its owner sends over a channel, which stays the
// caller's (package forwarding). When it returns, the port is open.
func (l *Link) Forward(ctx context.Context, channel *os.File) error {
	if err := l.lifeline.Ask(ctx, lifeline.Forward, channel); err != nil {
		return fmt.Errorf("open a port of a cell: %w", err)
	}
	return nil
}

// Policy is the one that the box has, nil where another skepd sent it.
func (l *Link) Policy() *skepv1.BoxPolicy {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.policy != nil {
		return l.policy
	}
	return l.assignment.GetPolicy()
}

// HungUp tells whether the box has ended, by the kernel's word.
func (l *Link) HungUp() bool {
	hungUp, err := sys.HungUp(l.lifeline.File())
	return hungUp || err != nil // we have hung up ourselves
}

// Lifeline is our end of the box's lifeline. It stays the link's.
func (l *Link) Lifeline() *os.File { return l.lifeline.File() }

// Moved is what another skepd left of a box: both files, and what the box knows.
type Moved struct {
	Conn, Lifeline *os.File
	Cell           string
	Names          *skepv1.ResolverUpdate // as they are now
	Recorder       Recorder
}

// Resume serves a box that moved away from another skepd. It owns the files.
func Resume(m Moved) (*Link, error) {
	l := newLink(m.Lifeline)
	l.Assign(&skepv1.Assignment{Cell: m.Cell, Resolver: m.Names}, m.Recorder)
	close(l.watching)
	l.ready <- nil
	return l, l.Resume(m.Conn)
}
