package h2

import (
	"fmt"

	"golang.org/x/net/http2/hpack"

	"skep.dev/skep/internal/h2/frame"
)

// Gone is closed when the caller or the connection has gone, or the call has its answer.
func (c *Call) Gone() <-chan struct{} { return c.gone }

// Go runs f in a goroutine of its own. The call keeps its place until f returns, and
// so there are no more of them than places.
func (c *Call) Go(f func()) {
	c.server.mu.Lock()
	c.running = true
	c.server.mu.Unlock()
	go func() {
		defer func() {
			c.server.mu.Lock()
			defer c.server.mu.Unlock()
			c.running = false
			if c.over != nil {
				delete(c.server.calls, c.id)
			}
		}()
		f()
	}()
}

// end is for server.mu held.
func (c *Call) end(why error) {
	if c.over == nil {
		c.over = why
		close(c.gone)
	}
	if !c.running {
		delete(c.server.calls, c.id)
	}
	c.wake.Broadcast()
}

// Answer gives the whole answer, which is short: one whose body the windows do not
// admit now breaks the call off, so that half of it is never taken for all.
func (c *Call) Answer(status int, content string, body []byte) error {
	return c.server.write(c.AppendAnswer(nil, status, content, body))
}

// AppendAnswer appends the frames of Answer, for several that go by one write. The
// call is over.
func (c *Call) AppendAnswer(out []byte, status int, content string, body []byte) []byte {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.over != nil {
		return out
	}
	c.end(errEnough)
	if s.windows.room(&c.window, len(body), 0) < len(body) {
		return append(out, frame.AppendNumber(nil, frame.Reset, c.id, frame.CodeCancel)...)
	}
	s.windows.take(&c.window, len(body), 0)
	out = frame.AppendBlock(out, endFlag(len(body) == 0), c.id, answerBlock(status, content))
	if len(body) > 0 {
		out = frame.Append(out, frame.Data, frame.EndStream, c.id, body)
	}
	return out
}

// Send writes frames that AppendAnswer made.
func (s *Server) Send(frames []byte) error { return s.write(frames) }

// Begin sends the head of an answer whose parts come later.
func (c *Call) Begin(content string) error {
	return c.server.write(frame.AppendBlock(nil, 0, c.id, answerBlock(200, content)))
}

// forAnswers is what parts leave of the connection's window: a stream that fills the
// rest does not break off the answer to another call.
const forAnswers = 32 << 10

// Part sends a part of the answer as the windows allow; the last ends the call.
func (c *Call) Part(b []byte, last bool) error {
	s := c.server
	for {
		s.mu.Lock()
		n := 0
		for c.over == nil {
			if n = s.windows.take(&c.window, len(b), forAnswers); n > 0 || len(b) == 0 {
				break
			}
			c.wake.Wait()
		}
		if c.over != nil {
			defer s.mu.Unlock()
			return c.over
		}
		end := last && n == len(b)
		if end {
			c.end(errEnough)
		}
		s.mu.Unlock()
		if err := s.write(frame.Append(nil, frame.Data, endFlag(end), c.id, b[:n])); err != nil {
			return err
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
}

func (c *Call) sending() *window { return &c.window }

func answerBlock(status int, content string) []byte {
	b := make([]byte, 0, 64)
	if status == 200 {
		b = append(b, status200)
	} else {
		b = appendHead(b, []Field{{":status", fmt.Sprint(status)}})
	}
	return appendHead(b, []Field{{"content-type", content}})
}

// request reads of a head what a call has. A head of our own client is literal
// throughout and leaves no trace in the table, so it is read as it stands.
func (s *Server) request(block []byte) (path, content string, err error) {
	if path, content, ok := literal(block); ok {
		return path, content, nil
	}
	sum := 0
	s.decoder.SetMaxStringLength(maxHead)
	s.decoder.SetEmitFunc(func(f hpack.HeaderField) {
		sum += len(f.Name) + len(f.Value)
		switch f.Name {
		case ":path":
			path = f.Value
		case "content-type":
			content = f.Value
		}
	})
	if _, err := s.decoder.Write(block); err != nil {
		return "", "", fmt.Errorf("read the head of a request: %w", err)
	}
	if err := s.decoder.Close(); err != nil {
		return "", "", fmt.Errorf("read the head of a request: %w", err)
	}
	if sum > maxHead {
		return "", "", errHead
	}
	return path, content, nil
}

// literal reads a block that appendHead made of short fields.
func literal(b []byte) (path, content string, ok bool) {
	for len(b) > 0 {
		name, rest, ok := shortText(b[1:])
		if b[0] != neverIndexed || !ok {
			return "", "", false
		}
		value, rest, ok := shortText(rest)
		if !ok {
			return "", "", false
		}
		b = rest
		switch string(name) {
		case ":path":
			path = string(value)
		case "content-type":
			content = string(value)
		}
	}
	return path, content, true
}

// shortText reads a string of less than 127 bytes that is not in Huffman's code.
func shortText(b []byte) (text, rest []byte, ok bool) {
	if len(b) == 0 || b[0] >= 127 || len(b) < 1+int(b[0]) {
		return nil, nil, false
	}
	n := 1 + int(b[0])
	return b[1:n], b[n:], true
}
