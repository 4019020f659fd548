package internet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// sink is a server that keeps what it gets.
type sink struct {
	mu  sync.Mutex
	got bytes.Buffer
	saw chan struct{} // closed at the first byte, if set
}

func (s *sink) serve(c *net.TCPConn) {
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		s.mu.Lock()
		s.got.Write(buf[:n])
		if n > 0 && s.saw != nil {
			close(s.saw)
			s.saw = nil
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *sink) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

// BX-10: TLS with the equal name passes; another or none gets the alert, and not
// one byte goes upstream.
func TestBX10ServerName(t *testing.T) {
	s := &sink{}
	port, _ := serve(t, s.serve)
	l := newLab(t, local(t, "ok.test", port))
	for host, want := range map[string]flow.Reason{"evil.test": flow.TLSNameMismatch, "": flow.TLSNameMissing, "127.0.0.9": flow.TLSNameMissing} {
		c := l.connect("ok.test", port)
		err := tls.Client(c, &tls.Config{ServerName: host, InsecureSkipVerify: true}).Handshake()
		if err == nil || !strings.Contains(err.Error(), "access denied") {
			t.Errorf("%q: %v", host, err)
		}
		r := l.last()
		if r.Verdict.Reason != want || r.Up != 0 || s.text() != "" || r.Decision != "block" || r.Request.Inner.Protocol != flow.TLS {
			t.Errorf("%q: %+v, upstream got %q", host, r, s.text())
		}
		if host == "evil.test" && r.Request.Inner.Name != host {
			t.Errorf("both names belong in the record: %+v", r.Request.Inner)
		}
	}
	saw := make(chan struct{})
	s.mu.Lock()
	s.saw = saw
	s.mu.Unlock()
	c := l.connect("ok.test", port)
	go func() { _ = tls.Client(c, &tls.Config{ServerName: "ok.test"}).Handshake() }()
	<-saw
	if !strings.Contains(s.text(), "ok.test") {
		t.Error("the hello did not go upstream")
	}
	c.Close()
	l.last()
}

// BX-12: other protocols pass on a TLS port, and a server may speak first.
func TestBX12ServerSpeaksFirst(t *testing.T) {
	port, _ := serve(t, func(c *net.TCPConn) {
		io.WriteString(c, "SSH-2.0-server\r\n")
		echo(c)
	})
	l := newLab(t, local(t, "ok.test", port))
	c := l.connect("ok.test", port)
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || line != "SSH-2.0-server\r\n" {
		t.Fatal(line, err)
	}
	io.WriteString(c, "SSH-2.0-client\r\n")
	if line, err := r.ReadString('\n'); err != nil || line != "SSH-2.0-client\r\n" {
		t.Fatal(line, err)
	}
	c.CloseWrite()
	io.Copy(io.Discard, r)
	if got := l.last(); got.Decision != "allow" || got.Up != 16 || got.Down != 32 || got.Request.Inner.Protocol != flow.Opaque {
		t.Errorf("%+v", got)
	}
	rule := local(t, "ok.test", port)
	rule.Inner = policy.InnerTLS
	l.install(policy.Policy{Rules: []policy.Rule{rule}, Ceiling: l.policy.Ceiling})
	c = l.connect("ok.test", port)
	io.WriteString(c, "SSH-2.0-client\r\n")
	io.Copy(io.Discard, c)
	if got := l.last(); got.Verdict.Reason != flow.TLSRequired || got.Up != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAgentThatOnlyListens(t *testing.T) {
	port, _ := serve(t, func(c *net.TCPConn) { io.Copy(io.Discard, c); io.WriteString(c, "late") })
	l := newLab(t, local(t, "ok.test", port))
	c := l.connect("ok.test", port)
	c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "late" {
		t.Errorf("%q %v", got, err)
	}
	l.last()
}

// BG-17 in the small: half-close, reset and bulk are exact.
func TestBG17HalfCloseResetBulk(t *testing.T) {
	const size = 64 << 20
	port, _ := serve(t, func(c *net.TCPConn) {
		n, _ := io.Copy(io.Discard, c) // to the half-close
		io.CopyN(c, zeros{}, n)
	})
	l := newLab(t, local(t, "ok.test", port))
	c := l.connect("ok.test", port)
	go func() { io.CopyN(c, zeros{}, size); c.CloseWrite() }()
	if n, err := io.Copy(io.Discard, c); n != size || err != nil {
		t.Errorf("%d bytes down, %v", n, err)
	}
	if r := l.last(); r.Up != size || r.Down != size {
		t.Errorf("recorded %d up, %d down", r.Up, r.Down)
	}

	port, _ = serve(t, func(c *net.TCPConn) { c.Read(make([]byte, 1)); c.SetLinger(0) })
	l = newLab(t, local(t, "ok.test", port))
	c = l.connect("ok.test", port)
	io.WriteString(c, "x")
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a reset of the server reached the agent as %v", err)
	}
	l.last()

	result, begun := make(chan error, 1), make(chan struct{})
	port, _ = serve(t, func(c *net.TCPConn) {
		c.Read(make([]byte, 1))
		close(begun)
		_, err := io.Copy(io.Discard, c)
		result <- err
	})
	l = newLab(t, local(t, "ok.test", port))
	c = l.connect("ok.test", port)
	io.WriteString(c, "x")
	c.SetLinger(0)
	<-begun
	c.Close()
	l.last()
	select {
	case err := <-result:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a reset of the agent reached the server as %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the server saw nothing")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// BX-13: every request on a plain HTTP connection names the host.
func TestBX13HostOnEveryRequest(t *testing.T) {
	s := &sink{}
	port, _ := serve(t, func(c *net.TCPConn) {
		go func() { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") }()
		s.serve(c)
	})
	rule := local(t, "ok.test", port)
	rule.HTTP = true
	l := newLab(t, rule)
	c := l.connect("ok.test", port)
	host := fmt.Sprintf("ok.test:%d", port)
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 3\r\n\r\nabc", host)
	r := bufio.NewReader(c)
	if a, err := http.ReadResponse(r, nil); err != nil || a.StatusCode != 200 {
		t.Fatal(a, err)
	} else {
		io.Copy(io.Discard, a.Body)
	}
	fmt.Fprintf(c, "GET /secret HTTP/1.1\r\nHost: evil.test:%d\r\n\r\n", port)
	a, err := http.ReadResponse(r, nil)
	if err != nil || a.StatusCode != 421 {
		t.Fatal(a, err)
	}
	body, _ := io.ReadAll(a.Body)
	if len(a.Header["Proxy-Status"]) != 1 || a.Header.Get("Boundary-Reason") != flow.HTTPHostMismatch.Sentence() || !strings.Contains(string(body), flow.HTTPHostMismatch.Sentence()) {
		t.Errorf("%v %q", a.Header, body)
	}
	if got := l.last(); got.Verdict.Reason != flow.HTTPHostMismatch || strings.Contains(s.text(), "secret") || got.Request.Inner.Name != "evil.test" {
		t.Errorf("%+v, upstream got %q", got, s.text())
	}
	for _, opening := range []string{"\x16\x03\x01\x00\x05hello", "SSH-2.0-x\r\n", "PRI * HTTP/2.0\r\n\r\n"} {
		before := s.text()
		c := l.connect("ok.test", port)
		io.WriteString(c, opening)
		got, _ := io.ReadAll(c)
		if r := l.last(); r.Verdict.Reason != flow.HTTPRequired || r.Up != 0 || s.text() != before || strings.Contains(string(got), "Boundary") {
			t.Errorf("%q: %+v, answer %q", opening, r, got)
		}
	}
}

// BC-44: a method or path outside of the rule is refused on that request alone, and
// what would allow it is told without repeating what the agent sent.
func TestBC44RequestsOnOneConnection(t *testing.T) {
	s := &sink{}
	port, _ := serve(t, func(c *net.TCPConn) {
		go func() { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") }()
		s.serve(c)
	})
	rule := local(t, "ok.test", port)
	rule.HTTP, rule.Methods, rule.Paths, rule.Correlate = true, []string{"GET"}, []string{"/repos/*"}, true
	l := newLab(t, rule)
	for request, want := range map[string]flow.Reason{
		"POST /repos/a": flow.MethodNotAllowed, "GET /private": flow.PathNotAllowed, "GET /repos/../private": flow.PathAmbiguous,
		"GET /repos/%2e%2e/private": flow.PathAmbiguous, "GET /repos/a%2fprivate": flow.PathAmbiguous,
	} {
		c := l.connect("ok.test", port)
		r := bufio.NewReader(c)
		fmt.Fprintf(c, "GET /repos/first HTTP/1.1\r\nHost: ok.test:%d\r\nX-Skep-Flow: forged\r\n\r\n", port)
		if a, err := http.ReadResponse(r, nil); err != nil || a.StatusCode != 200 {
			t.Fatal(a, err)
		} else {
			io.Copy(io.Discard, a.Body)
		}
		fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: ok.test:%d\r\nX-Second: yes\r\n\r\n", request, port)
		a, err := http.ReadResponse(r, nil)
		if err != nil || a.StatusCode != want.Status() || a.Header.Get("Boundary-Reason") != want.Sentence() {
			t.Errorf("%s: %v, %v", request, a, err)
		}
		_ = c.Close()
		got := l.last()
		if got.Verdict.Reason != want || want != flow.PathAmbiguous && !strings.Contains(got.Verdict.AllowWith, got.Verdict.Rule) || strings.Contains(got.Verdict.AllowWith, "private") {
			t.Errorf("%s: %+v", request, got.Verdict)
		}
		if text := s.text(); strings.Contains(text, "X-Second") || strings.Contains(text, "forged") || !strings.Contains(text, "X-Skep-Flow: "+got.Request.ID.String()) {
			t.Errorf("upstream got %q", text)
		}
	}
}

func TestUpgradeBecomesOpaque(t *testing.T) {
	port, _ := serve(t, func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		if q, err := http.ReadRequest(r); err != nil || q.Header.Get("Upgrade") != "websocket" {
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst")
		io.Copy(c, r)
	})
	rule := local(t, "ok.test", port)
	rule.HTTP = true
	l := newLab(t, rule)
	c := l.connect("ok.test", port)
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: ok.test:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x00\x01raw", port)
	c.CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(got), "\r\n\r\nfirst\x00\x01raw") {
		t.Errorf("%q %v", got, err)
	}
	l.last()
}

func TestIdleFlowIsClosed(t *testing.T) {
	for _, http := range []bool{false, true} {
		port, _ := serve(t, echo)
		rule := local(t, "ok.test", port)
		rule.HTTP = http
		l := newLab(t, rule)
		l.gate.Idle = 100 * time.Millisecond
		c := l.connect("ok.test", port)
		io.ReadAll(c)
		if r := l.last(); r.Verdict.Reason != flow.IdleTimeout {
			t.Errorf("%+v", r)
		}
	}
}

func TestEndOfCellEndsFlows(t *testing.T) {
	port, _ := serve(t, echo)
	l := newLab(t, local(t, "ok.test", port))
	agent, box := pair(t)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		l.gate.Serve(ctx, flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Name: "ok.test", Port: port, Count: 1}, boundary.Connected{Conn: box})
		l.done <- struct{}{}
	}()
	io.WriteString(agent, "x")
	io.ReadFull(agent, make([]byte, 1))
	cancel()
	if _, err := agent.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the agent saw %v", err)
	}
	if r := l.last(); r.Verdict.Reason != flow.Revoked {
		t.Errorf("%+v", r)
	}
}
