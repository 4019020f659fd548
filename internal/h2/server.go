package h2

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"

	"skep.dev/skep/internal/h2/frame"
)

// What a client may have under way: calls, and bytes of their requests in all.
const (
	maxCalls   = 16
	maxRequest = 4 << 20

	// A handler may be about to return when its caller begins the next call.
	maxPlaces = 2 * maxCalls
	// maxResets is how many calls a client may give up in a second.
	maxResets = 100
	// readWithin is how long a client may leave an answer unread.
	readWithin = 10 * time.Second

	serverBuffer = 2 * frame.MaxSize // so that what comes together is seen together
)

// Server is the other end of a connection: it takes requests whole, and its caller
// answers them in any order. It trusts its client as little as the client trusts it.
type Server struct {
	net     net.Conn
	handle  func(*Call)
	writing sync.Mutex    // as in Conn
	within  time.Duration // a write

	mu      sync.Mutex
	err     error            // why the connection ended
	calls   map[uint32]*Call // also those that are over, while their handler runs
	windows windows

	// The reader's own.
	last    uint32 // the highest number of a stream
	held    int    // bytes of requests that are not complete
	given   int    // bytes that were received and not yet given back
	decoder *hpack.Decoder
	resets  int // since
	since   time.Time
}

// Call is one request and the way to its answer.
type Call struct {
	Path, Content string // of the head
	Body          []byte // whole, once the call is handed over

	server *Server
	id     uint32
	whole  bool // the reader's own
	gone   chan struct{}

	// Guarded by server.mu.
	window
	over    error
	running bool // in a goroutine of its own
}

// NewServer speaks on c, which it owns. Run does the work.
func NewServer(c net.Conn) *Server {
	return &Server{
		net: c, within: readWithin, calls: map[uint32]*Call{}, windows: newWindows(), decoder: hpack.NewDecoder(4096, nil),
	}
}

// Close ends the connection and every call on it.
func (s *Server) Close() error {
	s.fail(net.ErrClosed)
	return nil
}

func (s *Server) fail(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = why
	_ = s.net.Close()
	for _, c := range s.calls {
		c.end(why)
	}
	s.calls = nil
}

// Run hands each complete request to handle, and calls idle before it waits for
// more; both in the caller's goroutine. It returns why the connection ended.
func (s *Server) Run(handle func(*Call), idle func()) error {
	s.handle = handle
	err := s.read(idle)
	s.fail(err)
	return err
}

func (s *Server) read(idle func()) error {
	in := bufio.NewReaderSize(s.net, serverBuffer)
	hello := make([]byte, len(frame.Preface))
	if _, err := io.ReadFull(in, hello); err != nil || string(hello) != frame.Preface {
		return fmt.Errorf("%w: no preface: %w", errFrame, err)
	}
	out := frame.AppendSettings(nil, []frame.Setting{{ID: frame.SettingStreams, Value: maxCalls}, {ID: frame.SettingWindow, Value: maxRequest}})
	if err := s.write(frame.AppendNumber(out, frame.WindowUpdate, 0, maxRequest-frame.FirstWindow)); err != nil {
		return err
	}
	heads := &heads{}
	frames := frame.Reader{From: in}
	for {
		if !whole(in) {
			idle()
		}
		f, err := frames.Next()
		if err != nil {
			return err
		}
		if heads.open() && (f.Kind != frame.Continuation || f.Stream != heads.stream) {
			return fmt.Errorf("%w: a head is interrupted", errFrame)
		}
		switch f.Kind {
		case frame.Headers, frame.Continuation:
			err = s.head(heads, f)
		case frame.Data:
			err = s.data(f)
		case frame.Reset:
			err = s.reset(f)
		case frame.Settings:
			err = s.settings(f)
		case frame.Ping:
			if !f.Has(frame.Ack) {
				err = s.write(frame.Append(nil, frame.Ping, frame.Ack, 0, f.Payload))
			}
		case frame.WindowUpdate:
			err = s.grow(f)
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

// whole reports whether the next frame is there in full.
func whole(in *bufio.Reader) bool {
	if in.Buffered() < frame.HeadSize {
		return false
	}
	head, err := in.Peek(frame.HeadSize)
	return err == nil && in.Buffered() >= frame.HeadSize+int(head[0])<<16+int(head[1])<<8+int(head[2])
}

// write ends the connection of a client that does not read: what waits to be
// written would pile up.
func (s *Server) write(b []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.net.SetWriteDeadline(time.Now().Add(s.within))
	if err == nil {
		_, err = s.net.Write(b)
	}
	if err != nil {
		s.fail(err)
	}
	return err
}

// head takes a HEADERS or CONTINUATION frame. Every head is decoded, also of a call
// that is refused: the table is the connection's.
func (s *Server) head(h *heads, f frame.Frame) error {
	if err := h.take(f); err != nil {
		return err
	}
	if !f.Has(frame.EndHeaders) {
		return nil
	}
	id := h.stream
	h.stream = 0
	path, content, err := s.request(h.block)
	if err != nil {
		return err
	}
	end := h.flags&frame.EndStream != 0
	s.mu.Lock()
	c := s.calls[id]
	s.mu.Unlock()
	switch {
	case id <= s.last && c == nil: // reset meanwhile
		return nil
	case id <= s.last: // trailers
		if !end || c.whole {
			return errFrame
		}
	case id%2 == 0:
		return errFrame
	default:
		s.last = id
		if c = s.begin(id, path, content); c == nil {
			return s.write(frame.AppendNumber(nil, frame.Reset, id, frame.CodeRefused))
		}
	}
	if end {
		s.complete(c)
	}
	return nil
}

func (s *Server) begin(id uint32, path, content string) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || len(s.calls) >= maxPlaces {
		return nil
	}
	c := &Call{Path: path, Content: content, server: s, id: id, window: s.windows.stream(&s.mu), gone: make(chan struct{})}
	s.calls[id] = c
	return c
}

func (s *Server) complete(c *Call) {
	s.held -= len(c.Body)
	c.whole = true
	s.handle(c)
}

// data takes a DATA frame. What a request holds is given back when the request is
// whole, so that all of them hold no more than one window.
func (s *Server) data(f frame.Frame) error {
	b, err := f.Content()
	if err != nil {
		return err
	}
	s.mu.Lock()
	c := s.calls[f.Stream]
	s.mu.Unlock()
	s.given += len(f.Payload)
	if c != nil {
		if c.whole {
			return errFrame
		}
		if s.held += len(b); s.held > maxRequest {
			return fmt.Errorf("%w: more than the window", errFrame)
		}
		c.Body = append(c.Body, b...)
		if f.Has(frame.EndStream) {
			s.complete(c)
		}
	}
	n := s.given - s.held
	if n < maxRequest/4 && (n == 0 || s.given < maxRequest/2) {
		return nil
	}
	s.given -= n
	return s.write(frame.AppendNumber(nil, frame.WindowUpdate, 0, uint32(n)))
}

// reset takes back a call. Its place is free when its handler has returned, so that
// calls and resets in turn leave no more behind than calls alone.
func (s *Server) reset(f frame.Frame) error {
	if len(f.Payload) != 4 {
		return errFrame
	}
	if now := time.Now(); now.Sub(s.since) > time.Second {
		s.resets, s.since = 0, now
	}
	if s.resets++; s.resets > maxResets {
		return fmt.Errorf("%w: more than %d resets in a second", errFrame, maxResets)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[f.Stream]; c != nil {
		if !c.whole {
			s.held -= len(c.Body)
		}
		c.end(errors.New("the caller has gone"))
	}
	return nil
}

// settings takes the peer's.
func (s *Server) settings(f frame.Frame) error {
	if f.Has(frame.Ack) {
		return nil
	}
	s.mu.Lock()
	err := resize(&s.windows, s.calls, f)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.write(frame.Append(nil, frame.Settings, frame.Ack, 0, nil))
}

func (s *Server) grow(f frame.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return grow(&s.windows, s.calls, f)
}
