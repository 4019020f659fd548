package streams

import (
	"encoding/binary"
	"errors"

	"skep.dev/skep/internal/dest/intercept/ws"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2/frame"
	"skep.dev/skep/internal/secret"
)

// answer is one frame of the destination.
func (c *conn) answer(f frame.Frame) error {
	if f.Kind == frame.Headers {
		return c.answerHead(f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f.Kind {
	case frame.Data:
		return c.answerData(f)
	case frame.Settings:
		return c.upSets(f)
	case frame.WindowUpdate:
		return c.opened(f)
	case frame.Ping:
		if len(f.Payload) != 8 || f.Stream != 0 {
			return frame.Broken("a ping that is none")
		}
		c.toAgent.put(func(b []byte) []byte { return frame.Append(b, frame.Ping, f.Flags&frame.Ack, 0, f.Payload) })
	case frame.Reset:
		code, err := f.Number()
		if err != nil {
			return err
		}
		if s := c.byUp[f.Stream]; s != nil {
			c.toAgent.put(func(b []byte) []byte { return frame.AppendNumber(b, frame.Reset, s.id, code) })
			c.drop(s)
			c.grant(nil)
		}
	case frame.GoAway:
		return c.leaves(f)
	case frame.Push, frame.Continuation:
		return frame.Broken("a frame that nobody has asked for")
	}
	return nil // what is unknown means nothing
}

// leaves is a GOAWAY: what the destination will not look at any more may be tried again.
// What it says beside that is not passed on.
func (c *conn) leaves(f frame.Frame) error {
	if len(f.Payload) < 8 || f.Stream != 0 {
		return frame.Broken("a goodbye that is none")
	}
	last, code := binary.BigEndian.Uint32(f.Payload)&frame.MaxWindow, binary.BigEndian.Uint32(f.Payload[4:])
	c.leaving = true
	c.toAgent.put(func(b []byte) []byte {
		if last == frame.MaxWindow { // it will name the last one later
			return appendGoAway(b, last, code)
		}
		return appendGoAway(b, c.lastAgent, code)
	})
	for _, s := range c.byUp {
		if s.up > last {
			c.toAgent.put(func(b []byte) []byte { return frame.AppendNumber(b, frame.Reset, s.id, frame.CodeRefused) })
			c.drop(s)
		}
	}
	c.grant(nil)
	return nil
}

// answerHead is the head of an answer, one before it, or its trailer.
func (c *conn) answerHead(f frame.Frame) error {
	block, err := c.fromUp.Block(f, maxAnswerHead)
	if err != nil {
		return err
	}
	fields, err := c.answers.read(block)
	if err != nil {
		return frame.Broken("an answer that cannot be read")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byUp[f.Stream]
	if s == nil {
		if f.Stream > c.lastUp || f.Stream%2 == 0 {
			return frame.Broken("an answer that nobody has asked for")
		}
		return nil
	}
	if s.upDone {
		return frame.Broken("an answer behind its end")
	}
	if s.watch == nil {
		s.watch = c.Keeper.Watch(c.Host, c.Port)
	}
	end := f.Has(frame.EndStream)
	if s.begun {
		if !end || s.socket {
			return frame.Broken("a second answer")
		}
		if err := readTrailer(fields); err != nil {
			return err
		}
		c.dataBack(s, s.watch.Rest(), false)
		return c.headBack(s, fields, true)
	}
	status, fields, err := readAnswer(fields)
	if err != nil || status < 200 && end {
		return errors.Join(frame.Broken("an answer that cannot be read"), err)
	}
	if s.begun = status >= 200; s.begun && s.request.protocol != "" && status < 300 {
		s.socket = true
		s.agent = (&ws.Agent{Keeper: c.Keeper, At: s.at, Now: c.Now, Room: c.Room, Record: func(u secret.Use) error { return c.Record(u, flow.None) }}).Begin()
		s.server = ws.NewServer(c.Keeper, c.Host, c.Port)
		for _, f := range fields {
			if f.Name == "sec-websocket-extensions" {
				return frame.Broken("an extension that nobody has asked for")
			}
		}
	}
	return c.headBack(s, fields, end)
}

// headBack passes a head or trailer on, if there is no value in it (B130).
func (c *conn) headBack(s *stream, fields []secret.Field, end bool) error {
	if _, err := s.watch.Feed(text(fields)); err != nil {
		return err
	}
	s.watch.Rest()
	var block []byte
	if c.newBackTable {
		block, c.newBackTable = append(block, 0x20), false
	}
	block = appendFields(block, fields)
	c.toAgent.put(func(b []byte) []byte {
		flags := byte(0)
		if end {
			flags = frame.EndStream
		}
		return frame.AppendBlock(b, flags, s.id, block)
	})
	s.upDone = end
	c.over(s)
	return nil
}

// answerData is a piece of an answer's body. What is not passed on at once is held back
// from a window that the agent has given, and needs none of ours.
func (c *conn) answerData(f frame.Frame) error {
	if f.Stream == 0 || f.Stream > c.lastUp {
		return frame.Broken("data of a stream that is idle")
	}
	s := c.byUp[f.Stream]
	if s == nil {
		c.giveBack(nil, len(f.Payload))
		return nil
	}
	data, err := f.Content()
	if err != nil {
		return err
	}
	if !s.begun || s.upDone {
		return frame.Broken("data without an answer")
	}
	c.giveBack(s, len(f.Payload)-len(data))
	end := f.Has(frame.EndStream)
	if s.socket {
		data, err = s.server.Feed(data)
	} else if data, err = s.watch.Feed(data); err == nil && end {
		c.dataBack(s, data, false)
		data = s.watch.Rest()
	}
	if errors.Is(err, ws.ErrFrame) {
		c.refuse(s, flow.MalformedUpgrade)
		return nil
	}
	if err != nil {
		return err
	}
	c.dataBack(s, data, end)
	s.upDone = end
	c.over(s)
	return nil
}

// dataBack passes data on.
func (c *conn) dataBack(s *stream, data []byte, end bool) {
	for len(data) > 0 || end {
		n, flags := min(len(data), frame.MaxSize), byte(0)
		if end && n == len(data) {
			flags = frame.EndStream
		}
		c.toAgent.put(func(b []byte) []byte { return frame.Append(b, frame.Data, flags, s.id, data[:n]) })
		if data = data[n:]; len(data) == 0 {
			return
		}
	}
}
