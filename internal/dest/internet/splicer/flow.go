package splicer

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/sys"
)

// Why a direction ended before its end of file.
var (
	ErrIdle    = errors.New("nothing moved for too long")
	ErrStopped = errors.New("the relay was stopped")
)

// Meter is what moved. It is shared with whoever moves other parts of the flow.
type Meter struct {
	Up, Down atomic.Uint64
	last     atomic.Int64 // when a byte last moved, Unix nanoseconds
}

// Touch says that something moved just now.
func (m *Meter) Touch() { m.last.Store(time.Now().UnixNano()) }

// Quiet is how long nothing moved.
func (m *Meter) Quiet() time.Duration { return time.Since(time.Unix(0, m.last.Load())) }

// Stream is a connection whose socket can be spliced: TCP, or a stream over a Unix socket.
type Stream interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// Flow is one pair of connections. The connections stay their owner's, too, who
// may use a direction until it is begun here.
type Flow struct {
	loop      *Loop
	agent, up *end
	toUp      direction
	toAgent   direction
	meter     *Meter
	bytes     *boundary.Bytes
	idle      time.Duration
	timer     *time.Timer

	// Guarded by loop.mu.
	held bool // the agent's end is its owner's: it gets neither end of file nor reset
	over bool
}

// end is one socket, by a descriptor of the loop's own.
type end struct {
	flow     *Flow
	id       uint64
	fd       int
	readable bool
	writable bool
	last     bool // nothing comes after what is there: read to the end
}

// New takes two connections into the loop. Nothing moves yet, and then nothing that
// bytes has no room for: without any, the flow ends with boundary.ErrExhausted.
func (l *Loop) New(agent, up Stream, meter *Meter, bytes *boundary.Bytes, idle time.Duration) (*Flow, error) {
	f := &Flow{loop: l, meter: meter, bytes: bytes, idle: idle}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.start(); err != nil {
		return nil, err
	}
	for _, e := range []struct {
		c  Stream
		at **end
	}{{agent, &f.agent}, {up, &f.up}} {
		fd, err := sys.DuplicateSocket(e.c)
		if err == nil {
			l.next++
			*e.at = &end{flow: f, id: l.next, fd: fd}
			if err = l.poller.Add(fd, l.next); err == nil {
				l.ends[l.next] = *e.at
			}
		}
		if err != nil {
			f.release(false)
			return nil, fmt.Errorf("relay a flow: %w", err)
		}
	}
	f.toUp = direction{flow: f, src: f.agent, dst: f.up, count: &meter.Up, done: make(chan struct{})}
	f.toAgent = direction{flow: f, src: f.up, dst: f.agent, count: &meter.Down, done: make(chan struct{})}
	meter.Touch()
	f.timer = time.AfterFunc(idle, f.check)
	return f, nil
}

// BeginUp relays from the agent from now on, BeginDown to it.
func (f *Flow) BeginUp() { f.begin(&f.toUp) }

// BeginDown relays to the agent from now on.
func (f *Flow) BeginDown() { f.begin(&f.toAgent) }

func (f *Flow) begin(d *direction) {
	f.loop.mu.Lock()
	defer f.loop.mu.Unlock()
	if f.over || d.begun {
		return
	}
	d.begun = true
	// What happened before is not reported again.
	d.src.readable, d.dst.writable = true, true
	d.move()
	f.loop.catchUp() // the thread may be waiting, and does not know
}

// Up waits for the end of the direction from the agent: nil is an end of file that
// was passed on.
func (f *Flow) Up() error { <-f.toUp.done; return f.toUp.err }

// Down waits for the end of the direction to the agent.
func (f *Flow) Down() error { <-f.toAgent.done; return f.toAgent.err }

// Hold leaves the agent's end to its owner: whatever ends, it is not told.
func (f *Flow) Hold() {
	f.loop.mu.Lock()
	defer f.loop.mu.Unlock()
	f.held = true
}

// Stop ends the relay as it is, and lets go of both connections: who owns them
// says how they end.
func (f *Flow) Stop() { f.finish(ErrStopped, false) }

// Reset ends the relay for a reason and resets both connections, once their owner has
// closed them, too.
func (f *Flow) Reset(why error) { f.finish(why, true) }

func (f *Flow) finish(why error, reset bool) {
	f.loop.mu.Lock()
	defer f.loop.mu.Unlock()
	f.end(why, reset)
}

// check ends a flow in which nothing moves.
func (f *Flow) check() {
	quiet := f.meter.Quiet()
	f.loop.mu.Lock()
	defer f.loop.mu.Unlock()
	switch {
	case f.over:
	case quiet < f.idle:
		f.timer.Reset(f.idle - quiet)
	case f.toUp.begun && !f.toUp.ended || f.toAgent.begun && !f.toAgent.ended:
		f.fail(ErrIdle)
	default:
		f.timer.Reset(f.idle) // its owner moves it, and knows
	}
}

// fail ends a flow that broke: a reset for both sides. loop.mu is held, as in all
// that follows.
func (f *Flow) fail(why error) { f.end(why, true) }

func (f *Flow) end(why error, reset bool) {
	if f.over {
		return
	}
	f.toUp.finish(why)
	f.toAgent.finish(why)
	f.release(reset)
}

// ended lets go of a flow whose directions have both ended by themselves.
func (f *Flow) ended() {
	if f.toUp.ended && f.toAgent.ended {
		f.release(false)
	}
}

func (f *Flow) release(reset bool) {
	f.over = true
	if f.timer != nil {
		f.timer.Stop()
	}
	for _, e := range []*end{f.agent, f.up} {
		if e == nil {
			continue
		}
		delete(f.loop.ends, e.id)
		f.loop.poller.Remove(e.fd)
		sys.CloseFD(e.fd, reset && (e != f.agent || !f.held))
	}
}

// happened moves what an event lets move.
func (e *end) happened(ev sys.Event) {
	e.readable = e.readable || ev.Readable
	e.writable = e.writable || ev.Writable
	e.last = e.last || ev.Last
	f := e.flow
	out, in := &f.toUp, &f.toAgent
	if e == f.up {
		out, in = in, out
	}
	if ev.Readable {
		out.move()
	}
	if ev.Writable && !in.empty() {
		in.move()
	}
}
