package h2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"skep.dev/skep/internal/h2/frame"
)

// Request is what to ask. Field names are in lower case.
type Request struct {
	Method, Authority, Path string
	Fields                  []Field
	Body                    io.Reader // nil: none
}

// Stream is one request and its answer, for one reader.
type Stream struct {
	conn *Conn
	id   uint32
	stop func() bool
	sent chan struct{} // closed when the body of the request is not read any more

	// Guarded by conn.mu.
	window
	room   int64  // what the peer may still send
	taken  uint32 // of what it sent, read and not yet given back
	status string
	head   []byte // the block of the answer
	ended  bool   // the answer is complete
	err    error
	body   bytes.Buffer
	tell   func(Answer) // of a call, until it is told
}

// Answer is what a call got. Status is empty if Err says why there is none.
type Answer struct {
	Status string
	Body   []byte
	Err    error
}

// errEnough says that an answer is complete before its request is.
var errEnough = errors.New("answered before the end of the request")

func (c *Conn) stream() *Stream {
	return &Stream{conn: c, window: window{wake: sync.NewCond(&c.mu)}, room: frame.FirstWindow, sent: make(chan struct{})}
}

// Post sends one request with its whole body. ctx is the life of the stream, the
// answer included.
func (c *Conn) Post(ctx context.Context, authority, path string, fields []Field, body []byte) (*Stream, error) {
	s := c.stream()
	defer close(s.sent)
	s.until(ctx)
	n, err := s.open(NewHead(Request{Method: "POST", Authority: authority, Path: path, Fields: fields}), body, true)
	if err == nil && n < len(body) {
		err = s.send(body[n:], true)
	}
	if err != nil && !errors.Is(err, errEnough) {
		s.Close()
		return nil, fmt.Errorf("request %s: %w", path, err)
	}
	return s, nil
}

// Do begins one request and sends its body beside the caller. The body is read
// until Sent is closed, at most.
func (c *Conn) Do(ctx context.Context, r Request) (*Stream, error) {
	s := c.stream()
	s.until(ctx)
	if _, err := s.open(NewHead(r), nil, r.Body == nil); err != nil {
		s.Close()
		return nil, fmt.Errorf("request %s: %w", r.Path, err)
	}
	if r.Body == nil {
		close(s.sent)
		return s, nil
	}
	go func() {
		defer close(s.sent)
		s.pump(r.Body)
	}()
	return s, nil
}

// Head is the head of a request, as it is sent.
type Head []byte

// NewHead is the head of r, for any number of requests.
func NewHead(r Request) Head {
	head := append([]Field{{":method", r.Method}, {":scheme", "http"}, {":authority", r.Authority}, {":path", r.Path}}, r.Fields...)
	return appendHead(nil, head)
}

// Call sends one request with its whole body and tells of its answer, once, by the
// goroutine that reads the connection: tell must not wait for another answer. After
// an error nothing is told.
func (c *Conn) Call(head Head, body []byte, tell func(Answer)) error {
	s := c.stream()
	close(s.sent)
	s.tell = tell
	n, err := s.open(head, body, true)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.tell == nil { // the reader was first
			return nil
		}
		s.tell = nil
		return fmt.Errorf("call: %w", err)
	}
	if n < len(body) {
		go func() { _ = s.send(body[n:], true) }() // what fails ends the stream, and that is told
	}
	return nil
}

// told gives what is left to do for a stream that may be over: tell of it. conn.mu
// is held for told, and not for what it gives.
func (s *Stream) told() func() {
	if s.tell == nil || !s.ended && s.err == nil {
		return func() {}
	}
	tell, a := s.tell, Answer{Status: s.status, Body: s.body.Bytes(), Err: s.err}
	s.tell = nil
	delete(s.conn.streams, s.id)
	return func() { tell(a) }
}

// Sent is closed when the body of the request is not read any more.
func (s *Stream) Sent() <-chan struct{} { return s.sent }

// pump sends a body as it comes. One that breaks off breaks the request off.
func (s *Stream) pump(body io.Reader) {
	buf := make([]byte, frame.MaxSize)
	for {
		n, err := body.Read(buf)
		end := errors.Is(err, io.EOF)
		if n > 0 || end {
			if s.send(buf[:n], end) != nil || end {
				return
			}
		}
		if err != nil {
			s.abandon(fmt.Errorf("read the body of a request: %w", err))
			return
		}
	}
}

// open registers the stream and sends its head, together with what of the body
// may go at once: how much that was. all says that body is the whole.
func (s *Stream) open(block Head, body []byte, all bool) (int, error) {
	c := s.conn
	if len(block) > maxHead {
		return 0, errHead
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return 0, c.err
	}
	s.id, s.left = c.next, c.windows.initial
	c.next += 2
	c.streams[s.id] = s
	n := c.windows.take(&s.window, len(body), 0)
	c.mu.Unlock()
	out := frame.AppendBlock(make([]byte, 0, len(block)+n+2*frame.HeadSize), endFlag(all && len(body) == 0), s.id, block)
	if n > 0 {
		out = frame.Append(out, frame.Data, endFlag(all && n == len(body)), s.id, body[:n])
	}
	_, err := c.net.Write(out)
	return n, err
}

// until ends the stream with ctx.
func (s *Stream) until(ctx context.Context) {
	s.stop = context.AfterFunc(ctx, func() { s.abandon(ctx.Err()) })
}

func endFlag(end bool) byte {
	if end {
		return frame.EndStream
	}
	return 0
}

func (s *Stream) sending() *window { return &s.window }

// send sends a part of a body as the windows allow.
func (s *Stream) send(body []byte, end bool) error {
	c := s.conn
	if len(body) == 0 && end {
		c.mu.Lock()
		over := s.err != nil || s.ended
		c.mu.Unlock()
		if over {
			return errEnough
		}
		return c.write(frame.Append(nil, frame.Data, frame.EndStream, s.id, nil))
	}
	for len(body) > 0 {
		c.mu.Lock()
		n := 0
		for s.err == nil && !s.ended {
			if n = c.windows.take(&s.window, len(body), 0); n > 0 {
				break
			}
			s.wake.Wait()
		}
		err := s.err
		if err == nil && s.ended {
			err = errEnough
		}
		c.mu.Unlock()
		if err != nil {
			return err
		}
		if err := c.write(frame.Append(nil, frame.Data, endFlag(end && n == len(body)), s.id, body[:n])); err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

// Status waits for the head of the answer: three digits.
func (s *Stream) Status() (string, error) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for s.status == "" && s.err == nil {
		s.wake.Wait()
	}
	if s.status == "" {
		return "", s.err
	}
	return s.status, nil
}

// Fields are those of the answer's head, after Status.
func (s *Stream) Fields() ([]Field, error) {
	s.conn.mu.Lock()
	block := s.head
	s.conn.mu.Unlock()
	all, err := readHead(block)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(f Field) bool { return strings.HasPrefix(f.Name, ":") }), nil
}

// Read reads the body of the answer; io.EOF is its end.
func (s *Stream) Read(p []byte) (int, error) {
	c := s.conn
	c.mu.Lock()
	for s.body.Len() == 0 && s.err == nil && !s.ended {
		s.wake.Wait()
	}
	if s.body.Len() == 0 {
		defer c.mu.Unlock()
		if s.err != nil {
			return 0, s.err
		}
		return 0, io.EOF
	}
	n, _ := s.body.Read(p)
	s.taken += uint32(n)
	give := s.taken
	if give < frame.FirstWindow/4 || s.ended {
		c.mu.Unlock()
		return n, nil
	}
	s.taken = 0
	s.room += int64(give)
	c.mu.Unlock()
	return n, c.write(frame.AppendNumber(nil, frame.WindowUpdate, s.id, give))
}

// Close forgets the stream; an answer that is not complete is cancelled.
func (s *Stream) Close() {
	s.stop()
	s.abandon(io.ErrClosedPipe)
}

// abandon ends the stream from our side.
func (s *Stream) abandon(why error) {
	c := s.conn
	c.mu.Lock()
	open := c.streams[s.id] == s
	delete(c.streams, s.id)
	cancel := open && s.err == nil && !s.ended
	s.end(why)
	c.mu.Unlock()
	if cancel {
		_ = c.write(frame.AppendNumber(nil, frame.Reset, s.id, frame.CodeCancel))
	}
}

// end, answered and received are the reader's of the connection; conn.mu is held.
func (s *Stream) end(why error) {
	if s.err == nil && !s.ended {
		s.err = why
	}
	s.wake.Broadcast()
}

func (s *Stream) answered(block []byte, end bool) error {
	if s.status == "" {
		status, err := statusOf(block)
		if err != nil {
			return err
		}
		// Interim answers (1xx) announce nothing that we asked for.
		if status[0] != '1' {
			s.status, s.head = status, block
		}
	}
	s.ended = s.ended || end
	s.wake.Broadcast()
	return nil
}

// received keeps data; padding counts for the windows, too.
func (s *Stream) received(b []byte, padding int, end bool) error {
	if s.room -= int64(len(b) + padding); s.room < 0 {
		return fmt.Errorf("%w: more than the window", errFrame)
	}
	s.taken += uint32(padding)
	s.body.Write(b)
	s.ended = s.ended || end
	s.wake.Broadcast()
	return nil
}
