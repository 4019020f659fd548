package h2

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
)

const (
	maxHead    = 64 << 10 // of one header block
	readBuffer = 4 << 10
)

var (
	errGone = errors.New("the peer goes away")
	errHead = errors.New("the head of an answer is too large")
)

// Conn is one connection. Its zero value is not usable.
type Conn struct {
	net net.Conn

	// writing is held for each write, so that the numbers of streams rise on the
	// wire. It is taken before mu, never after.
	writing sync.Mutex

	mu      sync.Mutex
	err     error // why the connection ended
	streams map[uint32]*Stream
	next    uint32 // number of the next stream
	windows windows

	unreturned uint32 // received bytes not yet given back; the reader's own
}

// New speaks HTTP/2 on c, which it owns.
func New(c net.Conn) (*Conn, error) {
	conn := &Conn{net: c, streams: map[uint32]*Stream{}, next: 1, windows: newWindows()}
	settings := []byte{0, settingTable, 0, 0, 0, 0, 0, settingPush, 0, 0, 0, 0}
	if _, err := c.Write(appendFrame([]byte(preface), frameSettings, 0, 0, settings)); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("begin HTTP/2: %w", err)
	}
	go func() { conn.fail(conn.read()) }()
	return conn, nil
}

// Close ends the connection and every stream on it.
func (c *Conn) Close() error {
	c.fail(net.ErrClosed)
	return nil
}

// fail ends everything, once.
func (c *Conn) fail(why error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = why
	_ = c.net.Close()
	var tell []func()
	for _, s := range c.streams {
		s.end(why)
		tell = append(tell, s.told())
	}
	c.streams = nil
	c.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// write sends whole frames.
func (c *Conn) write(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.net.Write(b)
	return err
}

// read takes frames until the connection ends.
func (c *Conn) read() error {
	in, buf := bufio.NewReaderSize(c.net, readBuffer), make([]byte, maxFrame)
	heads := &heads{}
	for {
		f, err := readFrame(in, buf)
		if err != nil {
			return err
		}
		if heads.open() && (f.kind != frameContinuation || f.stream != heads.stream) {
			return fmt.Errorf("%w: a head is interrupted", errFrame)
		}
		switch f.kind {
		case frameHeaders, frameContinuation:
			err = c.head(heads, f)
		case frameData:
			err = c.data(f)
		case frameReset:
			err = c.reset(f)
		case frameSettings:
			err = c.settings(f)
		case framePing:
			if !f.has(flagAck) {
				err = c.write(appendFrame(nil, framePing, flagAck, 0, f.payload))
			}
		case frameWindow:
			err = c.grow(f)
		case frameGoAway:
			err = errGone
		case framePush:
			err = fmt.Errorf("%w: a push", errFrame)
		}
		if err != nil {
			return err
		}
	}
}

// heads gathers a header block.
type heads struct {
	stream uint32 // whose block is open, 0: none
	flags  byte   // of its HEADERS frame
	block  []byte
}

func (h *heads) open() bool { return h.stream != 0 }

// take adds a HEADERS or CONTINUATION frame.
func (h *heads) take(f frame) error {
	if f.kind == frameHeaders {
		b, err := f.content()
		if err != nil || f.stream == 0 {
			return errFrame
		}
		h.stream, h.flags, h.block = f.stream, f.flags, append([]byte(nil), b...)
	} else {
		if !h.open() {
			return errFrame
		}
		h.block = append(h.block, f.payload...)
	}
	if len(h.block) > maxHead {
		return errHead
	}
	return nil
}

// head takes a HEADERS or CONTINUATION frame. The first head of a stream has its
// status, a later one is a trailer.
func (c *Conn) head(h *heads, f frame) error {
	if err := h.take(f); err != nil {
		return err
	}
	if !f.has(flagEndHeaders) {
		return nil
	}
	stream := h.stream
	h.stream = 0
	c.mu.Lock()
	tell := func() {}
	var err error
	if s := c.streams[stream]; s != nil {
		err = s.answered(h.block, h.flags&flagEndStream != 0)
		tell = s.told()
	}
	c.mu.Unlock()
	tell()
	return err
}

// data takes a DATA frame. What arrived for the connection is given back at once,
// what arrived for the stream when its reader has taken it.
func (c *Conn) data(f frame) error {
	b, err := f.content()
	if err != nil {
		return err
	}
	c.mu.Lock()
	tell := func() {}
	if s := c.streams[f.stream]; s != nil {
		err = s.received(b, len(f.payload)-len(b), f.has(flagEndStream))
		tell = s.told()
	}
	c.mu.Unlock()
	tell()
	if err != nil {
		return err
	}
	if c.unreturned += uint32(len(f.payload)); c.unreturned < firstWindow/4 {
		return nil
	}
	n := c.unreturned
	c.unreturned = 0
	return c.write(appendNumber(nil, frameWindow, 0, n))
}

func (c *Conn) reset(f frame) error {
	if len(f.payload) != 4 {
		return errFrame
	}
	c.mu.Lock()
	tell := func() {}
	if s := c.streams[f.stream]; s != nil {
		// A server that has answered in full may ask for no more of the request.
		if code := binary.BigEndian.Uint32(f.payload); code != codeNone || !s.ended {
			s.end(fmt.Errorf("the stream was reset with code %d", code))
		}
		tell = s.told()
	}
	c.mu.Unlock()
	tell()
	return nil
}

// settings takes the peer's.
func (c *Conn) settings(f frame) error {
	if f.has(flagAck) {
		return nil
	}
	c.mu.Lock()
	err := resize(&c.windows, c.streams, f)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.write(appendFrame(nil, frameSettings, flagAck, 0, nil))
}

func (c *Conn) grow(f frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return grow(&c.windows, c.streams, f)
}
