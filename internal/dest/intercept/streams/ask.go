package streams

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"skep.dev/skep/internal/dest/intercept/ws"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2/frame"
	"skep.dev/skep/internal/secret"
)

// ask is one frame of the agent.
func (c *conn) ask(f frame.Frame) error {
	if f.Kind == frame.Headers {
		return c.askHead(f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.counts(f); err != nil {
		return err
	}
	switch f.Kind {
	case frame.Data:
		return c.askData(f)
	case frame.Settings:
		return c.agentSets(f)
	case frame.WindowUpdate:
		return c.widened(f)
	case frame.Ping:
		if len(f.Payload) != 8 || f.Stream != 0 {
			return frame.Broken("a ping that is none")
		}
		c.toUp.put(func(b []byte) []byte { return frame.Append(b, frame.Ping, f.Flags&frame.Ack, 0, f.Payload) })
		if c.Failed != flow.None && !f.Has(frame.Ack) {
			c.toAgent.put(func(b []byte) []byte { return frame.Append(b, frame.Ping, frame.Ack, 0, f.Payload) })
		}
	case frame.Reset:
		code, err := f.Number()
		if err != nil || f.Stream == 0 || f.Stream > c.lastAgent {
			return frame.Broken("a reset of nothing")
		}
		if s := c.streams[f.Stream]; s != nil {
			c.reset(s, code)
			c.drop(s)
			c.grant(nil)
		}
	case frame.Push, frame.Continuation:
		return frame.Broken("a frame that no client sends")
	}
	return nil // of GOAWAY nothing follows; what is unknown means nothing
}

// counts counts the frames that cost the agent less than others.
func (c *conn) counts(f frame.Frame) error {
	switch {
	case f.Kind == frame.WindowUpdate, f.Kind == frame.Data && len(f.Payload) > 0:
		return nil
	}
	c.tick()
	if c.idle++; f.Kind == frame.Reset {
		c.resets++
	}
	if c.idle > maxIdle || c.resets > maxResets {
		return frame.Fail(frame.CodeCalm, "too many frames that carry nothing")
	}
	return nil
}

// tick begins a new second, when it has come.
func (c *conn) tick() {
	if now := time.Now(); now.Sub(c.second) >= time.Second {
		c.second, c.resets, c.idle, c.refusals = now, 0, 0, 0
	}
}

// overdone tells whether too much of what the agent asks is refused: each refusal may be
// a record.
func (c *conn) overdone() error {
	if c.refusals > maxResets {
		return frame.Fail(frame.CodeCalm, "too many requests that are refused")
	}
	return nil
}

// askHead is a request's head or trailer. It is judged, and its uses are recorded,
// without the lock, so that answers go on meanwhile.
func (c *conn) askHead(f frame.Frame) error {
	block, err := c.fromAgent.Block(f, maxBlock)
	if err != nil {
		return err
	}
	fields, err := c.requests.read(block)
	if err != nil && !errors.Is(err, errTooLarge) {
		return err
	}
	if f.Stream%2 == 0 {
		return frame.Broken("a stream that no client opens")
	}
	if f.Stream <= c.lastAgent { // which this loop alone writes
		c.mu.Lock()
		defer c.mu.Unlock()
		s := c.streams[f.Stream]
		if s == nil {
			return nil // it is over
		}
		if err != nil || !f.Has(frame.EndStream) || s.agentDone || s.socket {
			return frame.Broken("a second head")
		}
		return c.askTrailer(s, fields)
	}
	s := c.begin(f)
	if s == nil {
		return nil
	}
	why, head := flow.HeadTooLarge, request{}
	var uses []secret.Use
	if err == nil {
		head, uses, why = c.judge(s, fields)
	}
	defer head.Wipe()
	if why == flow.None && !s.whole {
		why = c.recordAll(uses)
	} else {
		c.misused(uses, why)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[s.id] != s {
		return nil
	}
	switch {
	case why != flow.None:
		if c.refuse(s, why); c.Failed != flow.None {
			return errOver
		}
		return c.overdone()
	case !s.whole:
		c.open(s, head, s.agentDone)
	case s.agentDone:
		return c.wholeRead(s)
	case strings.EqualFold(fieldOf(s.request.Fields, "expect"), "100-continue"):
		c.toAgent.put(func(b []byte) []byte {
			return frame.AppendBlock(b, 0, s.id, appendField(nil, ":status", []byte("100")))
		})
	}
	return nil
}

// begin makes a stream, or says that there is no room for one.
func (c *conn) begin(f frame.Frame) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastAgent = f.Stream
	s := &stream{id: f.Stream, agentDone: f.Has(frame.EndStream), granted: c.initial, window: c.initial, back: c.back}
	if len(c.streams) >= maxStreams || c.leaving || !c.take(s, perStream) {
		c.toAgent.put(func(b []byte) []byte { return frame.AppendNumber(b, frame.Reset, f.Stream, frame.CodeRefused) })
		return nil
	}
	c.streams[s.id] = s
	return s
}

// judge judges a head by itself (B127) and fills it in.
func (c *conn) judge(s *stream, fields []secret.Field) (request, []secret.Use, flow.Reason) {
	r, why := readRequest(fields)
	s.request = r
	s.at = secret.At{Host: c.Host, Port: c.Port, Path: r.Path()}
	if c.Failed != flow.None {
		return request{}, nil, c.Failed
	}
	if why != flow.None {
		return request{}, nil, why
	}
	c.mu.Lock()
	connects := c.connects
	c.mu.Unlock()
	if r.protocol != "" && (!connects || r.protocol != "websocket") {
		return request{}, nil, flow.UnsupportedProtocol
	}
	method := r.Method
	if r.protocol != "" {
		method = "GET" // which opens one over HTTP/1.1
	}
	if why := c.Decide(r.authority, method, s.at.Path); why != flow.None {
		return request{}, nil, why
	}
	if c.Flow.Name != "" {
		r.Fields = slices.DeleteFunc(r.Fields, func(f secret.Field) bool { return strings.EqualFold(f.Name, c.Flow.Name) })
		r.Fields = append(r.Fields, secret.Field{Name: c.Flow.Name, Value: slices.Clone(c.Flow.Value)})
		s.request = r
	}
	s.stray = c.Keeper.Stray(s.at)
	out := r
	var uses []secret.Use
	out.Head, uses, why = c.Keeper.Head(c.Host, c.Port, c.Now(), r.Head)
	s.whole = r.protocol == "" && c.Keeper.InBody(c.Host, c.Port, r.Head)
	return out, uses, why
}

// recordAll records uses before they are sent.
func (c *conn) recordAll(uses []secret.Use) flow.Reason {
	for _, use := range uses {
		if c.Record(use, flow.None) != nil {
			return flow.RecordUnavailable
		}
	}
	return flow.None
}

// misused records what is refused either way.
func (c *conn) misused(uses []secret.Use, why flow.Reason) {
	if why == flow.None {
		return
	}
	for _, use := range uses {
		_ = c.Record(use, why)
	}
}

// open tells the destination of a request.
func (c *conn) open(s *stream, head request, end bool) {
	c.lastUp += 2
	if c.lastUp == 2 {
		c.lastUp = 1
	}
	s.up = c.lastUp
	c.byUp[s.up] = s
	flags := byte(0)
	if end {
		flags = frame.EndStream
	}
	var block []byte
	if c.newTable {
		block, c.newTable = append(block, 0x20), false
	}
	block = appendRequest(block, head)
	defer clear(block)
	c.toUp.grow(len(block) + small)
	c.toUp.put(func(b []byte) []byte {
		b = frame.AppendBlock(b, flags, s.up, block)
		if s.early > 0 {
			b = frame.AppendNumber(b, frame.WindowUpdate, s.up, uint32(s.early))
		}
		return b
	})
}

// askData is a piece of a request's body, or of what a WebSocket says.
func (c *conn) askData(f frame.Frame) error {
	if f.Stream == 0 || f.Stream > c.lastAgent {
		return frame.Broken("data of a stream that is idle")
	}
	s := c.streams[f.Stream]
	if err := c.consumed(s, int64(len(f.Payload))); err != nil {
		return err
	}
	data, err := f.Content()
	if err != nil {
		return err
	}
	if s != nil && s.agentDone {
		return frame.Broken("data behind the end")
	}
	if s != nil {
		s.agentDone = f.Has(frame.EndStream)
		if err := c.pass(s, data); err != nil {
			return err
		}
	}
	c.grant(s)
	c.over(s)
	return c.overdone()
}

// pass looks at data and sends it on.
func (c *conn) pass(s *stream, data []byte) error {
	switch {
	case s.whole:
		return c.wholePart(s, data)
	case s.request.protocol != "" && !s.socket && len(data) > 0:
		c.refuse(s, flow.MalformedUpgrade) // before it is granted
		return nil
	case s.socket:
		out, err := s.agent.Feed(data)
		var misuse *ws.Misuse
		if errors.As(err, &misuse) {
			c.misused(misuse.Uses, misuse.Reason)
			c.refuse(s, misuse.Reason)
			return nil
		}
		if err != nil {
			c.refuse(s, flow.MalformedUpgrade)
			return nil
		}
		defer clear(out)
		return c.send(s, out, s.agentDone, nil)
	}
	if why, use := s.stray.Feed(data); why != flow.None {
		c.misused([]secret.Use{use}, why)
		c.refuse(s, why)
		return nil
	}
	return c.send(s, data, s.agentDone, nil)
}

// askTrailer is the end of a request.
func (c *conn) askTrailer(s *stream, fields []secret.Field) error {
	if err := readTrailer(fields); err != nil {
		return err
	}
	s.agentDone = true
	defer c.over(s)
	if s.whole { // its length is fixed, and nothing comes behind it
		return c.wholeRead(s)
	}
	if why, use := s.stray.Feed(text(fields)); why != flow.None {
		c.misused([]secret.Use{use}, why)
		c.refuse(s, why)
		return nil
	}
	return c.send(s, nil, true, func(b []byte) []byte { return frame.AppendBlock(b, frame.EndStream, s.up, appendFields(nil, fields)) })
}

// wholePart keeps a part of a body that is read whole.
func (c *conn) wholePart(s *stream, data []byte) error {
	if len(s.pending)+len(data) > secret.MaxBody {
		c.refuse(s, flow.SecretTooLarge)
		return nil
	}
	// As it is, filled in, and what is left of it beside that.
	if !c.take(s, 4*len(data)) {
		c.refuse(s, flow.Busy)
		return nil
	}
	s.keep(data)
	if s.agentDone {
		return c.wholeRead(s)
	}
	return nil
}

// wholeRead fills the body in, and sends the request.
func (c *conn) wholeRead(s *stream) error {
	now := c.Now()
	head, uses, why := c.Keeper.Head(c.Host, c.Port, now, s.request.Head)
	defer head.Wipe()
	var body []byte
	if why == flow.None {
		var more []secret.Use
		body, more, why = c.Keeper.Body(c.Host, c.Port, now, s.request.Head, s.pending)
		uses = append(uses, more...)
	}
	defer clear(body)
	if why == flow.None {
		why = c.recordAll(uses)
	} else {
		c.misused(uses, why)
	}
	if why != flow.None {
		c.refuse(s, why)
		return nil
	}
	out := s.request
	out.Head = head
	out.Fields = slices.DeleteFunc(slices.Clone(head.Fields), func(f secret.Field) bool {
		return strings.EqualFold(f.Name, "content-length") || strings.EqualFold(f.Name, "expect") || strings.EqualFold(f.Name, "trailer")
	})
	out.Fields = append(out.Fields, secret.Field{Name: "content-length", Value: strconv.AppendInt(nil, int64(len(body)), 10)})
	clear(s.pending)
	s.pending, s.whole = nil, false
	c.open(s, out, len(body) == 0)
	if len(body) == 0 {
		return nil
	}
	return c.send(s, body, true, nil)
}

func fieldOf(fields []secret.Field, name string) string {
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			return string(f.Value)
		}
	}
	return ""
}
