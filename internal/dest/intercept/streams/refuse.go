package streams

import (
	"strconv"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2/frame"
)

// refuse ends a stream in place of the destination: with an answer of ours, where none
// has begun (B60, B64).
func (c *conn) refuse(s *stream, why flow.Reason) {
	if c.refused == flow.None {
		c.refused = why
	}
	c.tick()
	c.refusals++
	if s.up != 0 {
		c.toUp.put(func(b []byte) []byte { return frame.AppendNumber(b, frame.Reset, s.up, frame.CodeCancel) })
	}
	c.toAgent.put(func(b []byte) []byte {
		if s.begun || why.Status() == 0 {
			return frame.AppendNumber(b, frame.Reset, s.id, frame.CodeCancel)
		}
		b = c.answerWith(b, s, why)
		if !s.agentDone { // the rest of the request is not read
			b = frame.AppendNumber(b, frame.Reset, s.id, frame.CodeNone)
		}
		return b
	})
	c.drop(s)
}

// answerWith adds an answer of ours. It has its sentence where the agent's window is
// known to have room.
func (c *conn) answerWith(b []byte, s *stream, why flow.Reason) []byte {
	sentence := why.Sentence() + "\n"
	body := int64(len(sentence))
	if body > min(c.reserve, s.back, answerBytes) {
		body = 0
	}
	var block []byte
	if c.newBackTable {
		block, c.newBackTable = append(block, 0x20), false
	}
	block = appendField(block, ":status", strconv.AppendInt(nil, int64(why.Status()), 10))
	block = appendField(block, "boundary-reason", []byte(why.Sentence()))
	block = appendField(block, "proxy-status", []byte(why.ProxyStatus("")))
	block = appendField(block, "content-type", []byte("text/plain"))
	block = appendField(block, "content-length", strconv.AppendInt(nil, body, 10))
	if body == 0 {
		return frame.AppendBlock(b, frame.EndStream, s.id, block)
	}
	c.reserve -= body
	return frame.Append(frame.AppendBlock(b, 0, s.id, block), frame.Data, frame.EndStream, s.id, []byte(sentence))
}

// reset tells the destination that a stream is taken back.
func (c *conn) reset(s *stream, code uint32) {
	if s.up != 0 {
		c.toUp.put(func(b []byte) []byte { return frame.AppendNumber(b, frame.Reset, s.up, code) })
	}
}

// over drops a stream that both sides have ended. s may be nil.
func (c *conn) over(s *stream) {
	if s != nil && s.agentDone && s.upDone && len(s.pending) == 0 && s.last == nil {
		c.drop(s)
	}
}

// drop forgets a stream.
func (c *conn) drop(s *stream) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	delete(c.byUp, s.up)
	if !s.whole {
		c.pending -= int64(len(s.pending))
	}
	s.close()
	c.give(s, s.room)
}
