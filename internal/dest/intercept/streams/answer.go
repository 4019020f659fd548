package streams

import (
	"encoding/binary"
	"errors"

	"skep.dev/skep/internal/dest/intercept/ws"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/secret"
)

// answer is one frame of the destination.
func (c *conn) answer(f frame) error {
	if f.kind == frameHeaders {
		return c.answerHead(f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f.kind {
	case frameData:
		return c.answerData(f)
	case frameSettings:
		return c.upSets(f)
	case frameWindow:
		return c.opened(f)
	case framePing:
		if len(f.payload) != 8 || f.stream != 0 {
			return broken("a ping that is none")
		}
		c.toAgent.put(func(b []byte) []byte { return appendFrame(b, framePing, f.flags&flagAck, 0, f.payload) })
	case frameReset:
		code, err := f.number()
		if err != nil {
			return err
		}
		if s := c.byUp[f.stream]; s != nil {
			c.toAgent.put(func(b []byte) []byte { return appendNumber(b, frameReset, s.id, code) })
			c.drop(s)
			c.grant(nil)
		}
	case frameGoAway:
		return c.leaves(f)
	case framePush, frameContinuation:
		return broken("a frame that nobody has asked for")
	}
	return nil // what is unknown means nothing
}

// leaves is a GOAWAY: what the destination will not look at any more may be tried again.
// What it says beside that is not passed on.
func (c *conn) leaves(f frame) error {
	if len(f.payload) < 8 || f.stream != 0 {
		return broken("a goodbye that is none")
	}
	last, code := binary.BigEndian.Uint32(f.payload)&maxWindow, binary.BigEndian.Uint32(f.payload[4:])
	c.leaving = true
	c.toAgent.put(func(b []byte) []byte {
		if last == maxWindow { // it will name the last one later
			return appendGoAway(b, last, code)
		}
		return appendGoAway(b, c.lastAgent, code)
	})
	for _, s := range c.byUp {
		if s.up > last {
			c.toAgent.put(func(b []byte) []byte { return appendNumber(b, frameReset, s.id, codeRefused) })
			c.drop(s)
		}
	}
	c.grant(nil)
	return nil
}

// answerHead is the head of an answer, one before it, or its trailer.
func (c *conn) answerHead(f frame) error {
	block, err := c.fromUp.block(f, maxAnswerHead)
	if err != nil {
		return err
	}
	fields, err := c.answers.read(block)
	if err != nil {
		return broken("an answer that cannot be read")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byUp[f.stream]
	if s == nil {
		if f.stream > c.lastUp || f.stream%2 == 0 {
			return broken("an answer that nobody has asked for")
		}
		return nil
	}
	if s.upDone {
		return broken("an answer behind its end")
	}
	if s.watch == nil {
		s.watch = c.Keeper.Watch(c.Host, c.Port)
	}
	end := f.has(flagEndStream)
	if s.begun {
		if !end || s.socket {
			return broken("a second answer")
		}
		if err := readTrailer(fields); err != nil {
			return err
		}
		c.dataBack(s, s.watch.Rest(), false)
		return c.headBack(s, fields, true)
	}
	status, fields, err := readAnswer(fields)
	if err != nil || status < 200 && end {
		return errors.Join(broken("an answer that cannot be read"), err)
	}
	if s.begun = status >= 200; s.begun && s.request.protocol != "" && status < 300 {
		s.socket = true
		s.agent = (&ws.Agent{Keeper: c.Keeper, At: s.at, Now: c.Now, Room: c.Room, Record: func(u secret.Use) error { return c.Record(u, flow.None) }}).Begin()
		s.server = ws.NewServer(c.Keeper, c.Host, c.Port)
		for _, f := range fields {
			if f.Name == "sec-websocket-extensions" {
				return broken("an extension that nobody has asked for")
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
			flags = flagEndStream
		}
		return appendBlock(b, flags, s.id, block)
	})
	s.upDone = end
	c.over(s)
	return nil
}

// answerData is a piece of an answer's body. What is not passed on at once is held back
// from a window that the agent has given, and needs none of ours.
func (c *conn) answerData(f frame) error {
	if f.stream == 0 || f.stream > c.lastUp {
		return broken("data of a stream that is idle")
	}
	s := c.byUp[f.stream]
	if s == nil {
		c.giveBack(nil, len(f.payload))
		return nil
	}
	data, err := f.content()
	if err != nil {
		return err
	}
	if !s.begun || s.upDone {
		return broken("data without an answer")
	}
	c.giveBack(s, len(f.payload)-len(data))
	end := f.has(flagEndStream)
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
		n, flags := min(len(data), maxFrame), byte(0)
		if end && n == len(data) {
			flags = flagEndStream
		}
		c.toAgent.put(func(b []byte) []byte { return appendFrame(b, frameData, flags, s.id, data[:n]) })
		if data = data[n:]; len(data) == 0 {
			return
		}
	}
}
