package boxlink

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/wire"
	"skep.dev/skep/internal/h2"
)

const (
	serviceName = "/skep.v1.BoxService/"

	unary     = "application/proto" // content types of the Connect protocol
	streaming = "application/connect+proto"

	partHead = 5 // of a message in a stream: a flag and a length
	lastPart = 2 // the flag of the message that ends it
)

// service is what the box can call: the box service of box.proto, by the Connect
// protocol. Calls are taken one after the other by the goroutine that reads; only
// Watch, which lasts, has one of its own.
type service struct {
	*Link
	server  *h2.Server
	moved   bool // the box knows its cell already
	updates chan *skepv1.WatchResponse
	waiting []*h2.Call // of Record: what came together becomes durable together
	watched bool
}

// fault is an error as Connect tells it.
type fault struct {
	code string
	err  error
}

func faultf(code, format string, a ...any) *fault { return &fault{code, fmt.Errorf(format, a...)} }

// status is that of a call without a stream.
func (f *fault) status() int {
	switch f.code {
	case "unavailable":
		return 503
	case "unimplemented":
		return 404
	}
	return 400
}

func (f *fault) body() []byte {
	b, _ := json.Marshal(map[string]string{"code": f.code, "message": f.err.Error()}) // two strings
	return b
}

func (s *service) handle(c *h2.Call) {
	switch {
	case c.Path == serviceName+"Record" && c.Content == unary:
		s.waiting = append(s.waiting, c)
	case c.Path == serviceName+"Ready" && c.Content == unary:
		answer(c, s.tellReady(c.Body))
	case c.Path == serviceName+"Lease" && c.Content == unary:
		c.Go(func() { s.lease(c) }) // the ledger's sync is not for others to wait for
	case c.Path == serviceName+"Draft" && c.Content == unary:
		c.Go(func() { s.draft(c) })
	case c.Path == serviceName+"Asked" && c.Content == unary:
		s.asked(c)
	case c.Path == serviceName+"UseSecret" && c.Content == unary:
		c.Go(func() { s.useSecret(c) }) // likewise
	case c.Path == serviceName+"Trust" && c.Content == unary:
		answer(c, s.trust(c.Body))
	case c.Path == serviceName+"Watch" && c.Content == streaming:
		s.watch(c)
	default:
		answer(c, faultf("unimplemented", "no call %q with %q", c.Path, c.Content))
	}
}

func answer(c *h2.Call, f *fault) {
	if f != nil {
		_ = c.Answer(f.status(), "application/json", f.body()) // a peer that has gone is seen where it is read
		return
	}
	_ = c.Answer(200, unary, nil)
}

// recordAll makes durable what waits, by one append, and answers it.
func (s *service) recordAll() {
	if len(s.waiting) == 0 {
		return
	}
	calls := s.waiting
	s.waiting = s.waiting[:0]
	defer clear(calls)
	var records []*skepv1.FlowRecord
	var numbers *skepv1.BoxNumbers
	taken, sizes := calls[:0], make([]int, 0, len(calls))
	for _, c := range calls {
		more, n, f := readRecords(c.Body)
		if f != nil {
			answer(c, f)
			continue
		}
		numbers = n
		taken, sizes, records = append(taken, c), append(sizes, len(more)), append(records, more...)
	}
	refused, f := s.record(records)
	s.number(numbers)
	var out []byte
	for i, c := range taken {
		if f != nil {
			out = c.AppendAnswer(out, f.status(), "application/json", f.body())
			continue
		}
		var body []byte
		body, refused = recorded(refused, sizes[i])
		out = c.AppendAnswer(out, 200, unary, body)
	}
	if len(out) > 0 {
		_ = s.server.Send(out)
	}
}

// recorded is the answer to a call that had n of the records, and what is refused of
// the ones after it, counted from there.
func recorded(refused []*skepv1.RefusedFlow, n int) (body []byte, rest []*skepv1.RefusedFlow) {
	if len(refused) == 0 {
		return nil, nil
	}
	var m skepv1.RecordResponse
	for _, r := range refused {
		if r.Index < uint32(n) {
			m.Refused = append(m.Refused, r)
		} else {
			rest = append(rest, &skepv1.RefusedFlow{Index: r.Index - uint32(n), Reason: r.Reason})
		}
	}
	body, _ = proto.Marshal(&m) // of valid strings
	return body, rest
}

// lease answers once what it gives is held durably.
func (s *service) lease(c *h2.Call) {
	q := &skepv1.LeaseRequest{}
	cell, r, ok := s.request(c, q)
	if !ok {
		return
	}
	n, err := r.Lease(cell, int64(min(q.Spent, math.MaxInt64)))
	if err != nil {
		answer(c, &fault{"unavailable", err})
		return
	}
	body, _ := proto.Marshal(&skepv1.LeaseResponse{Bytes: uint64(max(n, 0))}) // one number
	_ = c.Answer(200, unary, body)
}

// cell is what the box is assigned to, and who records for it.
func (s *service) cell() (string, Recorder, *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.assignment == nil {
		return "", nil, faultf("failed_precondition", "the box has no cell")
	}
	return s.assignment.Cell, s.recorder, nil
}

// request reads a call of a box that has a cell; any other is answered.
func (s *service) request(c *h2.Call, into proto.Message) (cell string, r Recorder, ok bool) {
	f := read(c.Body, into)
	if f == nil {
		cell, r, f = s.cell()
	}
	if f != nil {
		answer(c, f)
	}
	return cell, r, f == nil
}

// draft answers once the card is durable.
func (s *service) draft(c *h2.Call) {
	q := &skepv1.DraftRequest{}
	cell, r, ok := s.request(c, q)
	if !ok {
		return
	}
	card, err := r.Draft(cell, q)
	if err != nil {
		answer(c, &fault{"unavailable", err})
		return
	}
	body, _ := proto.Marshal(&skepv1.DraftResponse{Card: card}) // one valid string
	_ = c.Answer(200, unary, body)
}

func (s *service) asked(c *h2.Call) {
	q := &skepv1.AskedRequest{}
	cell, r, ok := s.request(c, q)
	if !ok {
		return
	}
	body, _ := proto.Marshal(&skepv1.AskedResponse{State: r.Asked(cell, q.Card)}) // one valid string
	_ = c.Answer(200, unary, body)
}

func (s *service) record(records []*skepv1.FlowRecord) ([]*skepv1.RefusedFlow, *fault) {
	cell, r, f := s.cell()
	if f != nil {
		return nil, f
	}
	// What a box does not wait for any more is recorded all the same.
	refused, err := r.RecordFlows(context.Background(), cell, records)
	if err != nil {
		return nil, &fault{"unavailable", err}
	}
	return refused, nil
}

// Numbered is a Recorder that wants to know what a box counts beside its records.
type Numbered interface {
	Numbers(n *skepv1.BoxNumbers)
}

// number tells them, if there are any.
func (s *service) number(n *skepv1.BoxNumbers) {
	if n == nil {
		return
	}
	if _, r, f := s.cell(); f == nil {
		if numbered, ok := r.(Numbered); ok {
			numbered.Numbers(n)
		}
	}
}

func (s *service) tellReady(body []byte) *fault {
	q := &skepv1.ReadyRequest{}
	if f := read(body, q); f != nil {
		return f
	}
	if q.Done {
		s.mu.Lock()
		s.spent, s.told = int64(min(q.Spent, math.MaxInt64)), true
		s.mu.Unlock()
		s.once.Do(func() { close(s.finished) })
		return nil
	}
	var err error
	if q.Error != "" {
		err = fmt.Errorf("the box cannot serve: %s", q.Error)
	}
	select {
	case s.ready <- err:
	default:
	}
	return nil
}

// watch serves Watch, the stream that is the box's life: without it the box decides
// by nothing new. What is refused is refused at once.
func (s *service) watch(c *h2.Call) {
	q := &skepv1.WatchRequest{}
	f := readPart(c.Body, q)
	switch {
	case f != nil:
	case q.Protocol != Protocol:
		f = faultf("failed_precondition", "box protocol %d, this is %d", q.Protocol, Protocol)
	case s.watched:
		f = faultf("failed_precondition", "the box watches already")
	}
	if f != nil {
		_ = c.Answer(200, streaming, part(lastPart, append(append([]byte(`{"error":`), f.body()...), '}')))
		return
	}
	s.watched = true
	if !s.moved {
		close(s.watching)
	}
	c.Go(func() {
		defer s.ended(s)
		_ = s.follow(c) // the box is gone, or has been told to go
	})
}

// follow sends the assignment once there is one, and then what changes.
func (s *service) follow(c *h2.Call) error {
	// The head of the answer goes ahead: with a cell, one message is left to send.
	if err := c.Begin(streaming); err != nil {
		return err
	}
	select {
	case <-s.assigned:
	case <-c.Gone():
		return io.ErrUnexpectedEOF
	case <-s.done:
		return nil
	}
	if !s.moved {
		if err := send(c, &skepv1.WatchResponse{Event: &skepv1.WatchResponse_Assignment{Assignment: s.assignment}}); err != nil {
			return err
		}
	}
	for {
		select {
		case m := <-s.updates:
			if err := send(c, m); err != nil {
				return err
			}
		case <-c.Gone():
			return io.ErrUnexpectedEOF
		case <-s.done:
			return nil
		}
	}
}

func send(c *h2.Call, m *skepv1.WatchResponse) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("write a message for the box: %w", err)
	}
	return c.Part(part(0, b), false)
}

// part is one message of a stream.
func part(flag byte, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(b))), b...)
}

// readPart reads the one message of a request to a stream.
func readPart(body []byte, into proto.Message) *fault {
	if len(body) < partHead || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-partHead {
		return &fault{"invalid_argument", errors.New("not one message")}
	}
	return read(body[partHead:], into)
}

// readRecords reads a request of Record as strictly as read does; what it holds holds
// no messages, so that there are two depths to look at.
func readRecords(body []byte) ([]*skepv1.FlowRecord, *skepv1.BoxNumbers, *fault) {
	q := &skepv1.RecordRequest{}
	if err := proto.Unmarshal(body, q); err != nil {
		return nil, nil, &fault{"invalid_argument", err}
	}
	unknown := len(q.ProtoReflect().GetUnknown()) + len(q.GetNumbers().ProtoReflect().GetUnknown())
	for _, r := range q.Records {
		unknown += len(r.ProtoReflect().GetUnknown())
	}
	switch {
	case unknown > 0:
		return nil, nil, faultf("invalid_argument", "%d bytes of unknown fields", unknown)
	case len(q.Records) > MaxRecords:
		return nil, nil, faultf("invalid_argument", "%d records are more than %d", len(q.Records), MaxRecords)
	}
	return q.Records, q.Numbers, nil
}

// read reads a message strictly: a field that we do not know is one that we would
// not record or heed.
func read(body []byte, into proto.Message) *fault {
	if err := wire.Unmarshal(body, into); err != nil {
		return &fault{"invalid_argument", err}
	}
	return nil
}
