package listener

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/tunnel"
)

func connect(host string, port uint16) string {
	return fmt.Sprintf("CONNECT %s:%d HTTP/1.1\r\nHost: %[1]s:%[2]d\r\n\r\n", host, port)
}

// What stands behind the head goes upstream, unchanged and after the 200 (B34, B38, B40).
func TestBytesBehindTheHead(t *testing.T) {
	l := newLab(t, nil)
	c := l.dial()
	behind := append(bytes.Repeat([]byte("x"), 100_000), connect("nested.test", 1)...)
	go func() {
		_, _ = c.Write(append([]byte(connect("ok.test", l.port)), behind...))
		_ = c.CloseWrite()
	}()
	r := bufio.NewReader(c)
	if head := answer(t, r); head != "HTTP/1.1 200 OK\r\n\r\n" {
		t.Fatalf("%q", head)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, behind) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(behind), err)
	}
	records := l.wait(2)
	if o := records[1]; o.Kind != boundary.Outcome || o.Up != uint64(len(behind)) || o.Down != o.Up || o.Address.Port() != l.port || o.Request.Wire != flow.H1 ||
		o.Request.Peer != "uid:"+strconv.Itoa(os.Getuid()) || o.Request.Cell != "c" || o.Policy != "1" {
		t.Errorf("%+v", o)
	}
}

func TestRefusals(t *testing.T) {
	l := newLab(t, nil)
	for head, want := range map[string]struct {
		status int
		token  string
	}{
		connect("no.test", l.port):                                                     {403, "not-on-allowlist"},
		connect("ok.test", l.port+1):                                                   {403, "port-not-allowed"},
		connect("10.9.9.9", l.port):                                                    {403, "ip-not-on-allowlist"},
		"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n":                                      {405, "connect-only"},
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                             {505, "unsupported-version"},
		"CONNECT [fe80::1%25eth0]:9 HTTP/1.1\r\n\r\n":                                  {400, "missing-host"},
		"CONNECT [fe80::1%25e]:9 HTTP/1.0\r\n\r\n":                                     {403, "scoped-ip"},
		"\r\nCONNECT ok.test:1 HTTP/1.0\r\n\r\n":                                       {400, "malformed-request-line"},
		"CONNECT ok.test:1 HTTP/1.0\r\nA: " + strings.Repeat("x", 70_000) + "\r\n\r\n": {431, "head-too-large"},
	} {
		before := len(l.wait(0))
		c := l.dial()
		go func() { _, _ = io.WriteString(c, head+"payload") }()
		got, err := io.ReadAll(c)
		if err != nil && len(got) == 0 {
			t.Fatalf("%.40q: %v", head, err)
		}
		text := string(got)
		if !strings.HasPrefix(text, fmt.Sprintf("HTTP/1.1 %d ", want.status)) || strings.Count(text, "Proxy-Status:") != 1 || !strings.HasSuffix(text, "\r\n\r\n") ||
			!strings.Contains(text, "; reason="+want.token+"\r\n") || strings.Count(text, "Boundary-Reason:") != 1 || strings.Contains(text, "payload") {
			t.Errorf("%.40q: %q", head, text)
		}
		if r := l.wait(before + 1)[before]; r.Kind != boundary.Denied || r.Verdict.Reason.Token() != want.token {
			t.Errorf("%.40q: %+v", head, r)
		}
	}
}

// A head that is not whole in time is answered 408 (BC-14); a connection that asks for
// nothing is no attempt.
func TestLateHead(t *testing.T) {
	l := newLab(t, func(l *Listener) { l.Head = 50 * time.Millisecond })
	_ = l.dial().Close()
	c := l.dial()
	_, _ = io.WriteString(c, "CONNECT ok.test")
	if got, _ := io.ReadAll(c); !strings.HasPrefix(string(got), "HTTP/1.1 408 ") {
		t.Errorf("%q", got)
	}
	if r := l.wait(1)[0]; r.Verdict.Reason != flow.HeadTimeout || r.Decision != "fail" {
		t.Errorf("%+v", r)
	}
}

// BC-31 and B42: over the budget a connection is refused before its head, and those that are open live on.
func TestOverTheBudget(t *testing.T) {
	l := newLab(t, func(l *Listener) { l.Gate.Flows = 1 })
	first := l.dial()
	_, _ = io.WriteString(first, connect("ok.test", l.port))
	r := bufio.NewReader(first)
	answer(t, r)
	if got, _ := io.ReadAll(l.dial()); !strings.Contains(string(got), "reason=busy") {
		t.Errorf("%q", got)
	}
	_, _ = io.WriteString(first, "alive")
	if b := make([]byte, 5); true {
		if _, err := io.ReadFull(r, b); err != nil || string(b) != "alive" {
			t.Errorf("%q, %v", b, err)
		}
	}
	if got := l.wait(2)[1]; got.Verdict.Reason != flow.Busy || got.Decision != "fail" {
		t.Errorf("%+v", got)
	}
}

// Without a policy nothing is decided (BC-36).
func TestNoPolicy(t *testing.T) {
	l := newLab(t, func(l *Listener) {
		old := l.Gate
		l.Gate = &boundary.Gate{Identity: old.Identity, Recorder: old.Recorder, Refusals: old.Refusals, Internet: old.Internet, Flows: 9, Now: time.Now}
	})
	c := l.dial()
	_, _ = io.WriteString(c, connect("ok.test", l.port))
	if got, _ := io.ReadAll(c); !strings.Contains(string(got), "reason=policy-unavailable") {
		t.Errorf("%q", got)
	}
}

// BC-34: the end of one listener ends its flows and heads, and nothing of another.
func TestTwoListeners(t *testing.T) {
	a, b := newLab(t, nil), newLab(t, nil)
	var conns []*net.UnixConn
	for _, l := range []*lab{a, b} {
		c := l.dial()
		_, _ = io.WriteString(c, connect("ok.test", l.port))
		if head := answer(t, bufio.NewReader(c)); !strings.Contains(head, "200") {
			t.Fatalf("%q", head)
		}
		conns = append(conns, c)
	}
	half := a.dial()
	_, _ = io.WriteString(half, "CONNECT ")
	_ = a.from.Close()
	a.end()
	if err := <-a.over; err != nil || a.open.Load() != 0 {
		t.Errorf("%v, %d open", err, a.open.Load())
	}
	for _, c := range []net.Conn{conns[0], half} {
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	if _, err := net.Dial("unix", a.path); err == nil {
		t.Error("a closed listener accepts")
	}
	_, _ = io.WriteString(conns[1], "x")
	if _, err := io.ReadFull(conns[1], make([]byte, 1)); err != nil {
		t.Errorf("the other's flow: %v", err)
	}
	if r := a.wait(2)[1]; r.Verdict.Reason != flow.Revoked {
		t.Errorf("%+v", r)
	}
}

// BU-1, BU-5, BU-6: datagrams in capsules, what is unknown skipped, what is too large the end.
func TestDatagrams(t *testing.T) {
	l := newLab(t, nil)
	c := l.dial()
	if err := tunnel.Ask(c, tunnel.Target{Transport: flow.UDP, Name: "ok.test", Port: l.port}); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	if err := tunnel.ReadAnswer(r, flow.UDP); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte{0x29, 2, 'x', 'y'}) // an unknown capsule
	in := tunnel.NewDatagrams(r)
	for _, text := range []string{"ping", "", strings.Repeat("z", 9000)} {
		_, _ = c.Write(tunnel.AppendDatagram(nil, []byte(text)))
		if got, err := in.Next(); err != nil || string(got) != text {
			t.Fatalf("%d bytes of %d, %v", len(got), len(text), err)
		}
	}
	_, _ = c.Write([]byte{0, 0x80, 0x10, 0, 0, 0}) // a datagram of 1 MiB
	if _, err := in.Next(); !errors.Is(err, io.EOF) && err == nil {
		t.Errorf("%v", err)
	}
	if o := l.wait(2)[1]; o.Up != 9004 || o.Down != 9004 || o.Request.Transport != flow.UDP {
		t.Errorf("%+v", o)
	}
}

// FuzzConversation: whatever comes, the bytes that are taken from the socket are those of
// the head, nothing opens that the parser did not accept, and every answer is whole.
func FuzzConversation(f *testing.F) {
	for _, s := range []string{"", "\r\n\r\n", connect("ok.test", 443) + "rest", "CONNECT ok.test:443 HTTP/1.0\r\n\r\n\x16\x03", "GET / HTTP/1.1\r\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b, err := socketPair()
		if err != nil {
			t.Skip(err)
		}
		defer func() { _ = a.Close(); _ = b.Close() }()
		go func() { _, _ = a.Write(in); _ = a.CloseWrite() }()
		l := &Listener{}
		got, gotErr := l.head(context.Background(), b)
		r := bytes.NewReader(in)
		direct := bufio.NewReader(r)
		want, wantErr := tunnel.ReadHead(direct, false)
		if got != want || (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("%+v, %v; directly %+v, %v", got, gotErr, want, wantErr)
		}
		if gotErr != nil {
			return
		}
		rest, _ := io.ReadAll(b)
		left, _ := io.ReadAll(direct)
		if !bytes.Equal(rest, left) {
			t.Fatalf("%q is left, directly %q", rest, left)
		}
	})
}

func socketPair() (a, b *net.UnixConn, err error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "", Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = l.Close() }()
	if a, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr)); err != nil {
		return nil, nil, err
	}
	b, err = l.AcceptUnix()
	return a, b, err
}
