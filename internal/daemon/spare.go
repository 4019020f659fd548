package daemon

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
	"skep.dev/skep/internal/daemon/wire"
	"skep.dev/skep/internal/sys"
)

// box is one boundary process that has not got, or has got, its cell.
type box struct {
	link    *boxlink.Link
	process cell.Process
	warden  *os.File // the warden's end of the socket between the two
	model   *os.File // the gateway's end of the box's connection to it
}

// makeBox starts a box that knows nothing yet.
func (d *Daemon) makeBox(ctx context.Context) (_ *box, err error) {
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
	model, modelEnd := pair(sys.StreamPair)
	if err != nil {
		return nil, err
	}
	p, err := d.Driver.Box(ctx, daemonEnd, wardenEnd, modelEnd)
	if err != nil {
		return nil, fmt.Errorf("start a box: %w", err)
	}
	sys.CloseAll([]*os.File{daemonEnd, wardenEnd, modelEnd})
	link, err := boxlink.Serve(daemon, wire.Options()...)
	if err != nil {
		_ = p.Kill()
		return nil, err
	}
	return &box{link: link, process: p, warden: warden, model: model}, nil
}

// release closes what a cell that has been built does not need any more.
func (b *box) release() {
	_ = b.warden.Close()
	_ = b.model.Close()
}

// end lets the box write what is left, then ends it.
func (b *box) end(ctx context.Context) error {
	err := b.link.End(ctx)
	b.kill()
	return err
}

func (b *box) kill() {
	b.link.Close()
	b.release()
	_ = b.process.Kill()
}

// gone is closed when the box cannot serve its cell any more.
func (b *box) gone() <-chan struct{} { return b.link.Done() }

// spare keeps one box ready, which has no cell, right or secret yet (B163).
type spare struct {
	make func(context.Context) (*box, error)
	log  *slog.Logger

	mu     sync.Mutex
	ready  *box
	making bool
	closed bool
}

// fill makes the spare box in the background.
func (s *spare) fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.making || s.ready != nil {
		return
	}
	s.making = true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		b, err := s.make(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.making = false
		switch {
		case err != nil:
			s.log.Warn("no spare box", "err", err)
		case s.closed || s.ready != nil:
			b.kill()
		default:
			s.ready = b
		}
	}()
}

// take gives the spare box, or makes one. The next spare is made by a fill.
func (s *spare) take(ctx context.Context) (*box, error) {
	s.mu.Lock()
	b, closed := s.ready, s.closed
	s.ready = nil
	s.mu.Unlock()
	if closed {
		return nil, errors.New("skepd is ending")
	}
	if b != nil {
		select {
		case <-b.gone():
			b.kill()
		case <-b.process.Done():
			b.kill()
		default:
			return b, nil
		}
	}
	return s.make(ctx)
}

func (s *spare) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.ready != nil {
		s.ready.kill()
		s.ready = nil
	}
}
