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
//     applies (B76).
package model

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/route"
)

// Dest is the gateway behind one HTTP connection that the box was given.
type Dest struct {
	Gateway http.RoundTripper
}

var errNoPermit = errors.New("open without a valid permit")

// Open refuses a permit that is not for the gateway's name; there is nothing to
// dial.
func (d Dest) Open(_ context.Context, p boundary.Permit) (boundary.Upstream, error) {
	if q := p.Request(); !p.Valid() || q.Name != name.Model || q.Port != 80 {
		return nil, &boundary.Failure{Reason: flow.PolicyUnavailable, Err: errNoPermit}
	}
	return &session{gateway: d.Gateway, request: p.Request()}, nil
}

// methods is the table of B71, as far as the gateway serves it now.
func methods(path string) []string {
	switch path {
	case "/v1/models":
		return []string{http.MethodGet, http.MethodHead}
	case "/v1/chat/completions":
		return []string{http.MethodPost}
	}
	return nil
}

// session is one connection of the agent.
type session struct {
	gateway http.RoundTripper
	request flow.Request

	up, down atomic.Uint64
	mu       sync.Mutex
	why      flow.Reason // of the first refusal
}

// Address is invalid: nothing was dialed.
func (s *session) Address() netip.AddrPort { return netip.AddrPort{} }

// Dropped is 0: nothing was resolved.
func (s *session) Dropped() int { return 0 }

// Carry serves HTTP/1.x until the agent or ctx ends the connection.
func (s *session) Carry(ctx context.Context, agent net.Conn) boundary.End {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler: s, Protocols: &protocols, ErrorLog: log.New(io.Discard, "", 0), MaxHeaderBytes: route.MaxInnerHead,
		ReadHeaderTimeout: boundary.FirstBytesTime, IdleTimeout: boundary.IdleTCP,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	one := newSingle(&counted{Conn: agent, s: s})
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	_ = server.Serve(one)
	_ = server.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return boundary.End{Up: s.up.Load(), Down: s.down.Load(), Reason: s.why, Inner: flow.Inner{Protocol: flow.HTTP}}
}

// ServeHTTP checks one request and passes it on.
func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if why := judge(r); why != flow.None {
		s.refuse(w, why, "")
		return
	}
	proxy := &httputil.ReverseProxy{
		Transport: s.gateway, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: s.rewrite,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, _ error) {
			if r.Context().Err() == nil {
				s.refuse(w, flow.NoProvider, "")
			}
		},
	}
	proxy.ServeHTTP(w, r)
}

// judge compares name, path and method as bytes (B71, B76).
func judge(r *http.Request) flow.Reason {
	host := strings.TrimSuffix(r.Host, ":80")
	if normal, err := name.Host(host); err != nil || normal != name.Model {
		return flow.HTTPHostMismatch
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	allowed := methods(path)
	if allowed == nil {
		return flow.PathNotAllowed
	}
	for _, m := range allowed {
		if r.Method == m {
			return flow.None
		}
	}
	return flow.MethodNotAllowed
}

// rewrite sets who asks; what the agent claims about that is dropped (B75).
func (s *session) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", name.Model, name.Model
	for key := range p.Out.Header {
		// Some servers read "_" as "-", so both spellings go.
		if strings.HasPrefix(strings.ToLower(strings.ReplaceAll(key, "_", "-")), "x-skep-") {
			delete(p.Out.Header, key)
		}
	}
	p.Out.Header.Del("Forwarded")
	p.Out.Header.Del("Upgrade")
	p.Out.Header.Del("Connection")
	p.Out.Header.Set("X-Skep-Agent", s.request.Agent)
	p.Out.Header.Set("X-Skep-Flow", s.request.ID.String())
}

// refuse answers with both fields of B60 and the sentence as body, and keeps the
// first reason for the record.
func (s *session) refuse(w http.ResponseWriter, why flow.Reason, detail string) {
	s.mu.Lock()
	if s.why == flow.None {
		s.why = why
	}
	s.mu.Unlock()
	h := w.Header()
	h.Set("Boundary-Reason", why.Sentence())
	h.Set("Proxy-Status", why.ProxyStatus(detail))
	h.Set("Connection", "close")
	http.Error(w, why.Sentence(), why.Status())
}

// counted counts the bytes of the agent's connection.
type counted struct {
	net.Conn
	s *session
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.s.up.Add(uint64(n))
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.s.down.Add(uint64(n))
	return n, err
}

// single is a listener of one connection: Accept gives it once and then waits
// until it is closed, which ends the server.
type single struct {
	conn net.Conn
	once sync.Once
	done chan struct{}
}

func newSingle(c net.Conn) *single {
	s := &single{done: make(chan struct{})}
	s.conn = &ending{Conn: c, done: sync.OnceFunc(func() { close(s.done) })}
	return s
}

func (s *single) Accept() (net.Conn, error) {
	var c net.Conn
	s.once.Do(func() { c = s.conn })
	if c != nil {
		return c, nil
	}
	<-s.done
	return nil, net.ErrClosed
}

// Close is the server's: the connection outlives it until it is closed itself.
func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }

type ending struct {
	net.Conn
	done func()
}

func (e *ending) Close() error {
	err := e.Conn.Close()
	e.done()
	return err
}
