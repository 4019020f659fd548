package internet

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// taken is an interceptor that says what it was given.
type taken chan []byte

func (c taken) Carry(_ context.Context, p boundary.Permit, agent, up net.Conn, hello []byte, inner flow.Inner) boundary.End {
	_, _ = agent.Close(), up.Close()
	if !p.Valid() {
		hello = nil
	}
	c <- hello
	return boundary.End{Up: 7, Inner: inner}
}

func (c taken) Stray(context.Context, flow.Request, string) func([]byte) flow.Reason {
	return func(b []byte) flow.Reason {
		if bytes.Contains(b, []byte("MARK")) {
			return flow.SecretNotBound
		}
		return flow.None
	}
}

// A flow to a bound name goes to the interceptor with its hello, and is never relayed as it
// is: not without one, and not when it is no TLS to that name (B123).
func TestInterceptedFlows(t *testing.T) {
	sink := &sink{}
	port, _ := serve(t, sink.serve)
	l := newLab(t)
	p := policy.Policy{Rules: []policy.Rule{local(t, "a.test", port), local(t, "b.test", port)}, Ceiling: policy.Ceiling{NoFloor: true}, Bound: []policy.Bound{{Name: "a.test", Ports: []uint16{port}}}}
	l.install(p)
	say := func(host, server, text string) {
		c := l.connect(host, port)
		if text != "" {
			_, _ = io.WriteString(c, text)
			_, _ = io.ReadAll(c)
			return
		}
		_ = tls.Client(c, &tls.Config{ServerName: server, InsecureSkipVerify: true}).Handshake()
		_ = c.Close()
	}
	want := func(what string, reason flow.Reason, up uint64) {
		t.Helper()
		if r := l.last(); r.Verdict.Reason != reason || r.Up != up {
			t.Errorf("%s: %s, %d bytes up", what, r.Verdict.Reason.Token(), r.Up)
		}
	}
	say("a.test", "a.test", "")
	want("without an interceptor", flow.SecretUnavailable, 0)
	by := make(taken, 1)
	l.dest.Intercept(by)
	say("a.test", "a.test", "")
	if hello := <-by; len(hello) < 100 || hello[0] != 22 {
		t.Errorf("the interceptor got %q", hello)
	}
	want("with one", flow.None, 7)
	say("a.test", "other.test", "")
	want("another name", flow.TLSNameMismatch, 0)
	say("a.test", "", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
	want("plain HTTP", flow.TLSRequired, 0)
	say("a.test", "", "SSH-2.0-x\r\n")
	want("no TLS", flow.TLSRequired, 0)
	c := l.connect("a.test", port)
	_ = c.Close()
	want("silence", flow.None, 0)
	sink.mu.Lock()
	if sink.got.Len() > 0 {
		t.Errorf("%d bytes went upstream", sink.got.Len())
	}
	sink.mu.Unlock()
	c = l.connect("b.test", port)
	_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
	_ = c.CloseWrite()
	_, _ = io.ReadAll(c)
	want("a name without a secret", flow.None, 11)
}

// TestBS4PlainRequests: a placeholder in the head or the body of a plain request of a cell
// with secrets refuses it, and the destination never has the whole of it (B129).
func TestBS4PlainRequests(t *testing.T) {
	sink := &sink{}
	port, _ := serve(t, sink.serve)
	rule := local(t, "a.test", port)
	rule.HTTP = true
	l := newLab(t, rule)
	l.dest.Intercept(make(taken, 1))
	head := "POST /x HTTP/1.1\r\nHost: a.test:" + strconv.Itoa(int(port)) + "\r\n"
	for what, text := range map[string]string{
		"head": head + "X: MARK\r\nContent-Length: 0\r\n\r\n", "body": head + "Content-Length: 8\r\n\r\n....MARK", "chunk": head + "Transfer-Encoding: chunked\r\n\r\n4\r\nMARK\r\n0\r\n\r\n",
	} {
		c := l.connect("a.test", port)
		_, _ = io.WriteString(c, text)
		answer, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 403 ") || !strings.Contains(string(answer), "secret-not-bound") {
			t.Errorf("%s: %q", what, answer)
		}
		if r := l.last(); r.Verdict.Reason != flow.SecretNotBound {
			t.Errorf("%s: %s", what, r.Verdict.Reason.Token())
		}
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	if strings.Contains(sink.got.String(), "MARK") {
		t.Errorf("the destination got %q", sink.got.String())
	}
}
