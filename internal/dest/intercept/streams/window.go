package streams

import "skep.dev/skep/internal/h2/frame"

// grant lets the agent send what the destination has a window for and nothing waits for:
// on a stream, which may be nil, and on the connection (RFC 9113, section 5.2).
func (c *conn) grant(s *stream) {
	if s != nil && !s.agentDone {
		waits := int64(len(s.pending))
		if s.whole {
			waits = 0 // it is read on, whatever the window
		}
		if n := s.window - s.granted - waits; n > 0 {
			s.granted += n
			c.toAgent.put(func(b []byte) []byte { return frame.AppendNumber(b, frame.WindowUpdate, s.id, uint32(n)) })
		}
	}
	if n := c.window - c.granted - c.pending; n > 0 {
		c.granted += n
		c.toAgent.put(func(b []byte) []byte { return frame.AppendNumber(b, frame.WindowUpdate, 0, uint32(n)) })
	}
}

// consumed takes what the agent has sent from its windows. s may be nil.
func (c *conn) consumed(s *stream, n int64) error {
	if c.granted -= n; c.granted < 0 {
		return frame.Fail(frame.CodeFlow, "more than the connection's window")
	}
	if s == nil {
		return nil
	}
	if s.granted -= n; s.granted < 0 {
		return frame.Fail(frame.CodeFlow, "more than a stream's window")
	}
	return nil
}

// opened is a WINDOW_UPDATE of the destination.
func (c *conn) opened(f frame.Frame) error {
	n, err := f.Number()
	if err != nil || n&frame.MaxWindow == 0 {
		return frame.Broken("a window that does not open")
	}
	by := int64(n & frame.MaxWindow)
	if f.Stream == 0 {
		if c.window += by; c.window > frame.MaxWindow {
			return frame.Fail(frame.CodeFlow, "the connection's window is over its largest")
		}
		c.flushAll()
		c.grant(nil)
		return nil
	}
	s := c.byUp[f.Stream]
	if s == nil {
		return nil // it is over
	}
	if s.window += by; s.window > frame.MaxWindow {
		return frame.Fail(frame.CodeFlow, "a stream's window is over its largest")
	}
	c.flush(s)
	c.grant(s)
	c.over(s)
	return nil
}

// widened is a WINDOW_UPDATE of the agent: the destination gets it, but for what answers
// of ours need.
func (c *conn) widened(f frame.Frame) error {
	n, err := f.Number()
	if n &= frame.MaxWindow; err != nil || n == 0 {
		return frame.Broken("a window that does not open")
	}
	if f.Stream != 0 {
		switch s := c.streams[f.Stream]; {
		case s == nil && f.Stream > c.lastAgent:
			return frame.Broken("a window of a stream that is idle")
		case s != nil && s.up == 0:
			if s.early += int64(n); s.early > frame.MaxWindow {
				return frame.Fail(frame.CodeFlow, "a stream's window is over its largest")
			}
		case s != nil:
			c.toUp.put(func(b []byte) []byte { return frame.AppendNumber(b, frame.WindowUpdate, s.up, n) })
		}
		return nil
	}
	kept := min(int64(n), ownAnswers-c.reserve)
	c.reserve += kept
	if n -= uint32(kept); n > 0 {
		c.toUp.put(func(b []byte) []byte { return frame.AppendNumber(b, frame.WindowUpdate, 0, n) })
	}
	return nil
}

// giveBack lets the destination send what has not gone to the agent. s may be nil.
func (c *conn) giveBack(s *stream, n int) {
	if n <= 0 {
		return
	}
	c.toUp.put(func(b []byte) []byte {
		b = frame.AppendNumber(b, frame.WindowUpdate, 0, uint32(n))
		if s != nil && !s.upDone {
			b = frame.AppendNumber(b, frame.WindowUpdate, s.up, uint32(n))
		}
		return b
	})
}

// send sends data of a stream to the destination as the windows allow, and the rest when
// they do. last adds the frames that end the stream; without it data may end it.
func (c *conn) send(s *stream, data []byte, end bool, last func([]byte) []byte) error {
	if end && last == nil {
		last = func(b []byte) []byte { return frame.Append(b, frame.Data, frame.EndStream, s.up, nil) }
		if n := int64(len(data)); n > 0 && len(s.pending) == 0 && n <= min(s.window, c.window) && n <= frame.MaxSize { // the usual end
			s.window -= n
			c.window -= n
			c.toUp.grow(len(data) + small)
			c.toUp.put(func(b []byte) []byte { return frame.Append(b, frame.Data, frame.EndStream, s.up, data) })
			return nil
		}
	}
	if last != nil {
		s.last = last
	}
	if len(s.pending) == 0 {
		data = data[c.out(s, data):]
	}
	if len(data) > 0 {
		if !c.take(s, len(data)) {
			return frame.Fail(frame.CodeCalm, "more waits for the destination than there is room for")
		}
		s.keep(data)
		c.pending += int64(len(data))
	}
	c.finish(s)
	return nil
}

// take takes room for a stream, which has it until it is given or dropped.
func (c *conn) take(s *stream, n int) bool {
	if !c.Room.Take(n) {
		return false
	}
	s.room += n
	return true
}

func (c *conn) give(s *stream, n int) {
	n = min(n, s.room)
	s.room -= n
	c.Room.Give(n)
}

// keep adds to what waits.
func (s *stream) keep(data []byte) {
	before := s.pending
	s.pending = append(s.pending, data...)
	if len(before) > 0 && &before[0] != &s.pending[0] {
		clear(before)
	}
}

// out writes as much of data as the windows allow, and returns how much that is.
func (c *conn) out(s *stream, data []byte) int {
	done := 0
	for done < len(data) {
		n := int(min(int64(len(data)-done), s.window, c.window, frame.MaxSize))
		if n <= 0 {
			break
		}
		s.window -= int64(n)
		c.window -= int64(n)
		c.toUp.grow(n + small)
		c.toUp.put(func(b []byte) []byte { return frame.Append(b, frame.Data, 0, s.up, data[done:done+n]) })
		done += n
	}
	return done
}

// flush writes what waits on a stream, while little waits to be written at all.
func (c *conn) flush(s *stream) {
	if s.whole || s.up == 0 {
		return
	}
	for len(s.pending) > 0 && len(c.toUp.buf) < enough {
		n := c.out(s, s.pending[:min(len(s.pending), frame.MaxSize)])
		if n == 0 {
			return
		}
		clear(s.pending[:n])
		s.pending = s.pending[n:]
		c.pending -= int64(n)
		c.give(s, n)
	}
	c.finish(s)
}

// finish ends a stream of which nothing waits any more.
func (c *conn) finish(s *stream) {
	if len(s.pending) > 0 {
		return
	}
	s.pending = nil
	if s.last != nil {
		c.toUp.put(s.last)
		s.last = nil
	}
}

// flushAll does so for all streams, when a window of all has grown or room was made.
func (c *conn) flushAll() {
	if c.pending == 0 {
		return
	}
	for _, s := range c.streams {
		if len(s.pending) > 0 {
			c.flush(s)
			c.grant(s)
			c.over(s)
		}
	}
}
