// Package boxes starts boundary processes, and keeps one ready beside a half-built cell.
//
// Its law: a spare box has no cell, no right and no secret yet (B163).
package boxes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/sys"
)

// Box is one boundary process that has not got, or has got, its cell.
type Box struct {
	Link    *boxlink.Link
	Process cell.Process
	Warden  *os.File // the warden's end of the socket between the two
	Model   *os.File // the gateway's end of the box's connection to it
}

// Start makes a box that knows nothing yet.
func (s *Pool) Start(ctx context.Context) (_ *Box, err error) {
	var made []*os.File
	defer func() {
		if err != nil {
			sys.CloseAll(made)
		}
	}()
	pair := func(of func() (a, b *os.File, err error)) (ours, theirs *os.File) {
		if err == nil {
			if ours, theirs, err = of(); err == nil {
				made = append(made, ours, theirs)
			}
		}
		return ours, theirs
	}
	daemon, daemonEnd := pair(sys.StreamPair)
	warden, wardenEnd := pair(sys.SeqpacketPair)
	line, lineEnd := pair(sys.SeqpacketPair)
	model, modelEnd := pair(sys.StreamPair)
	if err != nil {
		return nil, err
	}
	p, err := s.Driver.Box(ctx, cell.BoxEnds{Daemon: daemonEnd, Warden: wardenEnd, Lifeline: lineEnd, Model: modelEnd})
	if err != nil {
		return nil, fmt.Errorf("start a box: %w", err)
	}
	sys.CloseAll([]*os.File{daemonEnd, wardenEnd, lineEnd, modelEnd})
	link, err := boxlink.Serve(daemon, line)
	if err != nil {
		_ = p.Kill()
		return nil, err
	}
	return &Box{Link: link, Process: p, Warden: warden, Model: model}, nil
}

// Release closes what a cell that has been built does not need any more.
func (b *Box) Release() {
	_ = b.Warden.Close()
	_ = b.Model.Close()
}

// Kill ends the box at once.
func (b *Box) Kill() {
	b.Link.Close()
	b.Release()
	_ = b.Process.Kill()
}

// Gone is closed when the box cannot serve its cell any more.
func (b *Box) Gone() <-chan struct{} { return b.Link.Done() }

// Driver starts the processes.
type Driver interface {
	Box(ctx context.Context, ends cell.BoxEnds) (cell.Process, error)
}

// Pool makes boxes and keeps a spare one.
type Pool struct {
	Driver Driver
	Log    *slog.Logger

	mu     sync.Mutex
	ready  *Box
	making bool
	closed bool
	// resting is set while no spare box is wanted.
	resting bool
}

// Fill makes the spare box in the background, and has a cell begun (L22).
func (s *Pool) Fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.resting || s.making {
		return
	}
	if s.ready != nil {
		s.Prepare()
		return
	}
	s.making = true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		b, err := s.Start(ctx)
		s.Prepare()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.making = false
		switch {
		case err != nil:
			s.Log.Warn("no spare box", "err", err)
		case s.closed || s.resting || s.ready != nil:
			b.Kill()
		default:
			s.ready = b
		}
	}()
}

// Prepare has a cell begun, where none is (L22).
func (s *Pool) Prepare() {
	if p, ok := s.Driver.(cell.Preparer); ok {
		p.Prepare()
	}
}

// Take gives the spare box, or makes one. The next spare is made by a Fill.
func (s *Pool) Take(ctx context.Context) (*Box, error) {
	s.mu.Lock()
	b, closed := s.ready, s.closed
	s.ready = nil
	s.mu.Unlock()
	if closed {
		return nil, errors.New("skepd is ending")
	}
	if b != nil {
		select {
		case <-b.Gone():
			b.Kill()
		case <-b.Process.Done():
			b.Kill()
		default:
			return b, nil
		}
	}
	return s.Start(ctx)
}

// Close ends the spare box; none is made after it.
func (s *Pool) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.ready != nil {
		s.ready.Kill()
		s.ready = nil
	}
}
