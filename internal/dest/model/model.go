// Package model serves http://mesh.skep.alt inside a cell: it ends HTTP there and
// passes the few paths that exist to the model gateway (boundary.md, B70 row 1).
//
// Its laws:
//   - Only the exact paths and methods of B71 reach the gateway; all else is
//     refused here and reaches nothing.
//   - Host must be the name on every request of a connection (B76).
//   - Identity towards the gateway is the gate's: every X-Skep-* field of the
//     agent is removed, then two are set (B75). Authorization is left alone.
//   - Streams are flushed at once, bodies are not buffered, and no total timeout
//     applies (B76): a connection is idle when nothing moves either way.
package model

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/route"
)

const (
	lingerTime  = time.Second // for an answer of ours to arrive
	lingerBytes = 64 << 10
)

// Dest is the gateway behind a connection that the box was given.
type Dest struct {
	// Gateway gives the connection for one request, which ends with done. Between two
	// requests of one agent's connection it may change.
	Gateway func() (conn *h2.Conn, done func())
}

var (
	errNoPermit = errors.New("open without a valid permit")
	errLast     = errors.New("the last request of a connection")
)

// Open refuses a permit that is not for the gateway's name; there is nothing to
// dial.
func (d Dest) Open(_ context.Context, p boundary.Permit) (boundary.Upstream, error) {
	if q := p.Request(); !p.Valid() || q.Name != name.Model || q.Port != 80 || d.Gateway == nil {
		return nil, &boundary.Failure{Reason: flow.PolicyUnavailable, Err: errNoPermit}
	}
	return &session{gateway: d.Gateway, request: p.Request(), bytes: p.Bytes(), idle: p.Idle()}, nil
}

// methods is the table of B71, as far as the gateway serves it now.
func methods(path string) []string {
	switch path {
	case "/v1/models":
		return []string{"GET", "HEAD"}
	case "/v1/chat/completions":
		return []string{"POST"}
	}
	return nil
}

// session is one connection of the agent.
type session struct {
	gateway func() (*h2.Conn, func())
	request flow.Request
	bytes   *boundary.Bytes
	idle    time.Duration
	ctx     context.Context
	agent   net.Conn
	in      *bufio.Reader

	up, down atomic.Uint64
	moved    atomic.Int64 // when a byte last moved, Unix nanoseconds
	why      flow.Reason  // of the refusal that ended it

	mu      sync.Mutex
	patient bool        // a read may take as long as something moves: slow is not idle
	ended   flow.Reason // what ended it from outside
}

// Address is invalid: nothing was dialed.
func (s *session) Address() netip.AddrPort { return netip.AddrPort{} }

// Dropped is 0: nothing was resolved.
func (s *session) Dropped() int { return 0 }

// Carry serves HTTP/1.x until the agent or ctx ends the connection.
func (s *session) Carry(ctx context.Context, agent net.Conn) boundary.End {
	s.ctx, s.agent = ctx, agent
	s.in = bufio.NewReaderSize(fromAgent{s}, 16<<10)
	stop := context.AfterFunc(ctx, func() { _ = agent.Close() })
	defer stop()
	for s.next(ctx) == nil {
	}
	_ = agent.Close()
	return boundary.End{Up: s.up.Load(), Down: s.down.Load(), Reason: s.reason(), Inner: flow.Inner{Protocol: flow.HTTP}}
}

// next serves one request. An error means that there is no other.
func (s *session) next(ctx context.Context) error {
	s.patiently()
	if _, err := s.in.Peek(1); err != nil {
		return err
	}
	s.within(boundary.FirstBytesTime)
	h, err := route.ReadHead(s.in, 80, false)
	var fault *route.HeadError
	switch {
	case errors.As(err, &fault):
		return s.refuse(fault.Reason)
	case err != nil:
		return err
	}
	r := parse(h)
	if why := judge(h, r); why != flow.None {
		return s.refuse(why)
	}
	s.patiently()
	return s.pass(ctx, h, r)
}

// judge takes HTTP/1.1 alone, and compares name, path and method as bytes (B71, B76).
func judge(h route.Head, r request) flow.Reason {
	if r.old {
		return flow.UnsupportedVersion
	}
	if h.Inner.Name != name.Model {
		return flow.HTTPHostMismatch
	}
	path, _, _ := strings.Cut(r.target, "?")
	allowed := methods(path)
	switch {
	case allowed == nil:
		return flow.PathNotAllowed
	case !slices.Contains(allowed, h.Inner.Method):
		return flow.MethodNotAllowed
	}
	return flow.None
}

// pass asks the gateway and gives its answer to the agent, as it comes.
func (s *session) pass(ctx context.Context, h route.Head, r request) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body := &wholly{}
	ask := h2.Request{Method: h.Inner.Method, Authority: name.Model, Path: r.target, Fields: s.identify(r.fields)}
	if h.Chunked || h.Length > 0 {
		if r.waits {
			if _, err := io.WriteString(toAgent{s}, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
				return err
			}
		}
		body.Reader = route.Body(s.in, h)
		ask.Body = body
	}
	gateway, done := s.gateway()
	defer done()
	answer, err := gateway.Do(ctx, ask)
	if err != nil {
		return s.refuse(flow.NoProvider)
	}
	defer answer.Close()
	gone := s.watch(answer.Sent(), cancel)
	err = s.give(answer, h, r)
	switch left := gone(); {
	case !left && errors.Is(err, errNoAnswer):
		return s.refuse(flow.NoProvider)
	case err != nil:
		return err
	case ask.Body != nil && !body.read.Load():
		// What is left of the body cannot be told from the next request.
		return s.linger()
	}
	<-answer.Sent()
	return nil
}

// wholly is a body that knows whether it was read to its end.
type wholly struct {
	io.Reader
	read atomic.Bool
}

func (w *wholly) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		w.read.Store(true)
	}
	return n, err
}

// watch ends a request whose agent has gone, once its body is sent. The function
// that it returns ends the watch and says whether the agent has gone.
func (s *session) watch(sent <-chan struct{}, cancel func()) func() bool {
	stop, gone := make(chan struct{}), make(chan bool, 1)
	go func() {
		select {
		case <-sent:
		case <-stop:
			gone <- false
			return
		}
		_, err := s.in.Peek(1)
		select {
		case <-stop:
			gone <- false
		default:
			if err != nil {
				cancel()
			}
			gone <- err != nil
		}
	}()
	return func() bool {
		close(stop)
		s.within(0)
		return <-gone
	}
}

// identify sets who asks; what the agent claims about that is not among fields
// (B75).
func (s *session) identify(fields []h2.Field) []h2.Field {
	return append(fields, h2.Field{Name: "x-skep-agent", Value: s.request.Agent}, h2.Field{Name: "x-skep-flow", Value: s.request.ID.String()})
}

// refusal is an answer as an SDK of this API reads it, beside the fields of B60. Where no
// model answers, it names what there is to configure: the agent's person reads it. The
// words are ours and plain, so that quoting makes JSON of them.
func refusal(why flow.Reason) string {
	if why.Status() == 0 {
		return ""
	}
	kind, message := "invalid_request_error", why.Sentence()
	if why.Status() >= 500 {
		kind = "server_error"
	}
	if why == flow.NoProvider {
		message = "no model answers here: name a target and a role for it on the host, in ~/.config/skep/config.yaml or /etc/skep/config.yaml (docs/models.md), and run the cell again"
	}
	return route.AnswerWith(why, "application/json", fmt.Sprintf(`{"error":{"message":%q,"type":%q,"code":%q}}`+"\n", message, kind, why.Token()))
}

// refuse answers with both fields of B60 and an error of this API as body, and ends the
// connection.
func (s *session) refuse(why flow.Reason) error {
	s.why = why
	s.within(lingerTime)
	_ = s.agent.SetWriteDeadline(time.Now().Add(lingerTime))
	if _, err := io.WriteString(toAgent{s}, refusal(why)); err != nil {
		return err
	}
	return s.linger()
}

// linger reads on for a moment: closing with unread bytes would reset the
// connection and take the answer with it.
func (s *session) linger() error {
	s.within(lingerTime)
	if c, ok := s.agent.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, fromAgent{s}, lingerBytes)
	}
	return errLast
}
