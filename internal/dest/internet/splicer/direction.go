package splicer

import (
	"errors"
	"sync/atomic"

	"skep.dev/skep/internal/sys"
)

// direction is one half of a flow. What was read and not yet sent is either in
// left or in pipe.
type direction struct {
	flow     *Flow
	src, dst *end
	count    *atomic.Uint64

	begun, ended bool
	behind       bool // waits for its next share
	starved      bool // waits for a lease of bytes
	bulk         bool // the last turn moved much: begin with the pipe
	left         []byte
	pipe         pipe
	piped        int
	eof          bool

	done chan struct{}
	err  error // set before done is closed
}

func (d *direction) empty() bool { return len(d.left) == 0 && d.piped == 0 }

// move moves until nothing comes, nothing can be sent, or the share is used.
func (d *direction) move() {
	if !d.begun || d.ended {
		return
	}
	moved := 0
	for {
		n, again, err := d.step()
		moved += n
		d.count.Add(uint64(n))
		switch {
		case err != nil:
			d.flow.fail(err)
			return
		case d.eof && d.empty():
			d.pass()
			return
		case again && moved < share:
			continue
		case again && !d.behind:
			d.behind = true
			d.flow.loop.behind = append(d.flow.loop.behind, d)
		}
		if moved > 0 {
			d.flow.meter.Touch()
			d.bulk = moved > 2*smallSize
		}
		return
	}
}

// step sends what waits, or reads and sends a piece: how much was sent, and
// whether there may be more to do now.
func (d *direction) step() (sent int, again bool, err error) {
	switch {
	case !d.empty():
		if !d.dst.writable {
			return 0, false, nil
		}
		if d.piped > 0 {
			return d.drain()
		}
		sent, err = d.send(d.left)
		d.left = d.left[sent:]
		if len(d.left) == 0 {
			d.left = nil
		}
		return sent, sent > 0, err
	case d.eof || !d.src.readable:
		return 0, false, nil
	case d.bulk:
		return d.fill()
	}
	return d.copy()
}

// copy moves a small piece through the loop's buffer. A short read has taken all
// that was there; what comes later is a new event. Only an end of file that the
// event has told already is not told again: then it reads on.
func (d *direction) copy() (int, bool, error) {
	buf := d.flow.loop.small
	room := d.flow.bytes.Take(len(buf))
	if room == 0 {
		return d.starve()
	}
	n, err := sys.Receive(d.src.fd, buf[:room])
	d.flow.bytes.Settle(room, n)
	switch {
	case errors.Is(err, sys.ErrAgain):
		d.src.readable = false
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case n == 0:
		d.eof = true
		return 0, false, nil
	}
	d.bulk = n == len(buf)
	if n < room && !d.src.last {
		d.src.readable = false
	}
	sent, err := d.send(buf[:n])
	if err == nil && sent < n {
		d.left = append([]byte(nil), buf[sent:n]...)
	}
	return sent, d.src.readable || sent < n, err
}

// send gives bytes to the socket; too few of them means that it is full.
func (d *direction) send(b []byte) (int, error) {
	n, err := sys.Send(d.dst.fd, b)
	if errors.Is(err, sys.ErrAgain) {
		n, err = 0, nil
	}
	if n < len(b) {
		d.dst.writable = n > 0
	}
	return n, err
}

// fill takes what there is into a pipe, and drains it.
func (d *direction) fill() (int, bool, error) {
	p, err := d.flow.loop.pipe()
	if err != nil {
		d.bulk = false // no descriptors left: small pieces will do
		return 0, true, nil
	}
	room := d.flow.bytes.Take(pipeSize)
	if room == 0 {
		d.flow.loop.keep(p, true)
		return d.starve()
	}
	n, err := sys.Splice(d.src.fd, p.w, room)
	d.flow.bytes.Settle(room, n)
	switch {
	case err == nil && n > 0:
		d.pipe, d.piped = p, n
		return d.drain()
	case errors.Is(err, sys.ErrAgain):
		d.src.readable = false
		err = nil
	case err == nil:
		d.eof = true
	}
	d.flow.loop.keep(p, true)
	return 0, false, err
}

// starve has bytes leased for what is there to be read. An end of file needs none.
func (d *direction) starve() (int, bool, error) {
	switch n, err := sys.Peek(d.src.fd); {
	case errors.Is(err, sys.ErrAgain):
		d.src.readable = false
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case n == 0:
		d.eof = true
		return 0, true, nil
	}
	if !d.starved {
		d.starved = true
		d.flow.bytes.Wait(d.leased)
	}
	return 0, false, nil
}

// leased goes on after a lease, or ends a flow that gets none.
func (d *direction) leased(why error) {
	l := d.flow.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	d.starved = false
	if why != nil && !d.ended {
		d.flow.fail(why)
		return
	}
	d.move()
	l.catchUp()
}

func (d *direction) drain() (int, bool, error) {
	n, err := sys.Splice(d.pipe.r, d.dst.fd, d.piped)
	switch {
	case errors.Is(err, sys.ErrAgain):
		d.dst.writable = false
		return 0, false, nil
	case err != nil:
		return 0, false, err
	}
	if d.piped -= n; d.piped == 0 {
		d.flow.loop.keep(d.pipe, true)
	}
	return n, true, nil
}

// pass ends a direction whose end of file has come.
func (d *direction) pass() {
	if !d.flow.held || d.dst != d.flow.agent {
		_ = sys.EndWrites(d.dst.fd) // a peer that has reset is seen where it is read
	}
	d.finish(nil)
	d.flow.ended()
}

func (d *direction) finish(why error) {
	if d.ended {
		return
	}
	d.flow.bytes.Settle(0, -len(d.left)-d.piped)
	if d.piped > 0 {
		d.flow.loop.keep(d.pipe, false)
		d.piped = 0
	}
	d.left, d.ended, d.err = nil, true, why
	close(d.done)
}
