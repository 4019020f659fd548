package h2

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"

	"skep.dev/skep/internal/h2/frame"
)

const (
	maxHead    = 64 << 10 // of one header block
	readBuffer = 4 << 10
)

var (
	errGone  = errors.New("the peer goes away")
	errFrame = errors.New("malformed HTTP/2 frame")
	errHead  = errors.New("the head of an answer is too large")
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
	hello := frame.AppendSettings([]byte(frame.Preface), []frame.Setting{{ID: frame.SettingTable}, {ID: frame.SettingPush}})
	if _, err := c.Write(hello); err != nil {
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
	in := frame.Reader{From: bufio.NewReaderSize(c.net, readBuffer)}
	heads := &heads{}
	for {
		f, err := in.Next()
		if err != nil {
			return err
		}
		if heads.open() && (f.Kind != frame.Continuation || f.Stream != heads.stream) {
			return fmt.Errorf("%w: a head is interrupted", errFrame)
		}
		switch f.Kind {
		case frame.Headers, frame.Continuation:
			err = c.head(heads, f)
		case frame.Data:
			err = c.data(f)
		case frame.Reset:
			err = c.reset(f)
		case frame.Settings:
			err = c.settings(f)
		case frame.Ping:
			if !f.Has(frame.Ack) {
				err = c.write(frame.Append(nil, frame.Ping, frame.Ack, 0, f.Payload))
			}
		case frame.WindowUpdate:
			err = c.grow(f)
		case frame.GoAway:
			err = errGone
		case frame.Push:
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
func (h *heads) take(f frame.Frame) error {
	if f.Kind == frame.Headers {
		b, err := f.Content()
		if err != nil || f.Stream == 0 {
			return errFrame
		}
		h.stream, h.flags, h.block = f.Stream, f.Flags, append([]byte(nil), b...)
	} else {
		if !h.open() {
			return errFrame
		}
		h.block = append(h.block, f.Payload...)
	}
	if len(h.block) > maxHead {
		return errHead
	}
	return nil
}

// head takes a HEADERS or CONTINUATION frame. The first head of a stream has its
// status, a later one is a trailer.
func (c *Conn) head(h *heads, f frame.Frame) error {
	if err := h.take(f); err != nil {
		return err
	}
	if !f.Has(frame.EndHeaders) {
		return nil
	}
	stream := h.stream
	h.stream = 0
	c.mu.Lock()
	tell := func() {}
	var err error
	if s := c.streams[stream]; s != nil {
		err = s.answered(h.block, h.flags&frame.EndStream != 0)
		tell = s.told()
	}
	c.mu.Unlock()
	tell()
	return err
}

// data takes a DATA frame. What arrived for the connection is given back at once,
// what arrived for the stream when its reader has taken it.
func (c *Conn) data(f frame.Frame) error {
	b, err := f.Content()
	if err != nil {
		return err
	}
	c.mu.Lock()
	tell := func() {}
	if s := c.streams[f.Stream]; s != nil {
		err = s.received(b, len(f.Payload)-len(b), f.Has(frame.EndStream))
		tell = s.told()
	}
	c.mu.Unlock()
	tell()
	if err != nil {
		return err
	}
	if c.unreturned += uint32(len(f.Payload)); c.unreturned < frame.FirstWindow/4 {
		return nil
	}
	n := c.unreturned
	c.unreturned = 0
	return c.write(frame.AppendNumber(nil, frame.WindowUpdate, 0, n))
}

func (c *Conn) reset(f frame.Frame) error {
	code, err := f.Number()
	if err != nil {
		return err
	}
	c.mu.Lock()
	tell := func() {}
	if s := c.streams[f.Stream]; s != nil {
		// A server that has answered in full may ask for no more of the request.
		if code != frame.CodeNone || !s.ended {
			s.end(fmt.Errorf("the stream was reset with code %d", code))
		}
		tell = s.told()
	}
	c.mu.Unlock()
	tell()
	return nil
}

// settings takes the peer's.
func (c *Conn) settings(f frame.Frame) error {
	if f.Has(frame.Ack) {
		return nil
	}
	c.mu.Lock()
	err := resize(&c.windows, c.streams, f)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.write(frame.Append(nil, frame.Settings, frame.Ack, 0, nil))
}

func (c *Conn) grow(f frame.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return grow(&c.windows, c.streams, f)
}
