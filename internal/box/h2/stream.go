package h2

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"golang.org/x/net/http2/hpack"
)

// Field is one header field; its name is in lower case.
type Field struct{ Name, Value string }

// Stream is one request and its answer, for one reader.
type Stream struct {
	conn *Conn
	id   uint32
	stop func() bool

	// Guarded by conn.mu.
	wake   *sync.Cond
	window int64  // what may still be sent
	room   int64  // what the peer may still send
	taken  uint32 // of what it sent, read and not yet given back
	status string
	ended  bool // the answer is complete
	err    error
	body   bytes.Buffer
}

// Post sends one request with its whole body. ctx is the life of the stream, the
// answer included.
func (c *Conn) Post(ctx context.Context, authority, path string, fields []Field, body []byte) (*Stream, error) {
	s := &Stream{conn: c, wake: sync.NewCond(&c.mu), room: firstWindow}
	out, err := s.open(authority, path, fields, body)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", path, err)
	}
	s.stop = context.AfterFunc(ctx, func() { s.abandon(ctx.Err()) })
	if err := s.send(body[out:]); err != nil {
		s.Close()
		return nil, fmt.Errorf("request %s: %w", path, err)
	}
	return s, nil
}

// open registers the stream and sends its head, together with what of the body
// may go at once: how much that was.
func (s *Stream) open(authority, path string, fields []Field, body []byte) (int, error) {
	c := s.conn
	var block bytes.Buffer
	// The peer's table must stay empty: each block is complete in itself.
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSize(0)
	head := append([]Field{{":method", "POST"}, {":scheme", "http"}, {":authority", authority}, {":path", path}}, fields...)
	for _, f := range head {
		if err := encoder.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value}); err != nil {
			return 0, err
		}
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return 0, c.err
	}
	s.id, s.window = c.next, c.initial
	c.next += 2
	c.streams[s.id] = s
	n := s.quota(len(body))
	c.mu.Unlock()
	out := appendFrame(nil, frameHeaders, flagEndHeaders|endFlag(len(body) == 0), s.id, block.Bytes())
	if n > 0 {
		out = appendFrame(out, frameData, endFlag(n == len(body)), s.id, body[:n])
	}
	_, err := c.net.Write(out)
	return n, err
}

func endFlag(end bool) byte {
	if end {
		return flagEndStream
	}
	return 0
}

// quota takes what may be sent now of n bytes. conn.mu is held.
func (s *Stream) quota(n int) int {
	may := min(int64(n), s.window, s.conn.window, maxFrame)
	if may <= 0 {
		return 0
	}
	s.window -= may
	s.conn.window -= may
	return int(may)
}

// send sends the rest of a body as the windows allow.
func (s *Stream) send(body []byte) error {
	c := s.conn
	for len(body) > 0 {
		c.mu.Lock()
		n := 0
		for s.err == nil && !s.ended {
			if n = s.quota(len(body)); n > 0 {
				break
			}
			s.wake.Wait()
		}
		err, ended := s.err, s.ended
		c.mu.Unlock()
		if err != nil || ended {
			return err // who has answered in full wants no more
		}
		if err := c.write(appendFrame(nil, frameData, endFlag(n == len(body)), s.id, body[:n])); err != nil {
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
	if give < firstWindow/4 || s.ended {
		c.mu.Unlock()
		return n, nil
	}
	s.taken = 0
	s.room += int64(give)
	c.mu.Unlock()
	return n, c.write(appendNumber(nil, frameWindow, s.id, give))
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
		_ = c.write(appendNumber(nil, frameReset, s.id, codeCancel))
	}
}

// end, answered and received are the reader's of the connection; conn.mu is held.
func (s *Stream) end(why error) {
	if s.err == nil && !s.ended {
		s.err = why
	}
	s.wake.Broadcast()
}

func (s *Stream) answered(status string, end bool) {
	// Interim answers (1xx) announce nothing that we asked for.
	if s.status == "" && (len(status) != 3 || status[0] != '1') {
		s.status = status
	}
	s.ended = s.ended || end
	s.wake.Broadcast()
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
