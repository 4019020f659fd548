package start

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/tunnel"
)

// testBoundary is the other end of the channel: it allows what it is told to, by
// name or address, and keeps what it was asked.
type testBoundary struct {
	t      *testing.T
	path   string
	allow  map[string]string // target to what is dialed
	answer map[string]string // target to a verbatim answer; after a refusal the connection is closed

	mu    sync.Mutex
	asked []string
}

func serveBoundary(t *testing.T, allow map[string]string) *testBoundary {
	t.Helper()
	return serveAnswers(t, allow, nil)
}

func serveAnswers(t *testing.T, allow, answer map[string]string) *testBoundary {
	t.Helper()
	b := &testBoundary{t: t, path: filepath.Join(t.TempDir(), "s"), allow: allow, answer: answer}
	l, err := net.Listen("unix", b.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(c.(*net.UnixConn))
		}
	}()
	return b
}

func (b *testBoundary) serve(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	target, err := tunnel.ReadHead(r, true)
	var fault *tunnel.HeadError
	if err != nil && !errors.As(err, &fault) {
		return // somebody looks whether we are there
	}
	b.note(target)
	if verbatim, ok := b.answer[target.String()]; ok {
		if _, err := io.WriteString(c, verbatim); err != nil || verbatim[len("HTTP/1.1 ")] == '4' {
			return
		}
	} else if b.allow[target.String()] == "" {
		_, _ = io.WriteString(c, tunnel.Refused(flow.NotOnAllowlist, ""))
		return
	}
	if target.Transport == flow.UDP {
		b.carryUDP(c, r, target)
		return
	}
	up, err := net.DialTimeout("tcp", b.allow[target.String()], time.Second)
	if err != nil {
		_, _ = io.WriteString(c, tunnel.Refused(flow.DialFailed, ""))
		return
	}
	defer func() { _ = up.Close() }()
	if _, ok := b.answer[target.String()]; !ok {
		_, _ = io.WriteString(c, tunnel.Accepted(flow.TCP))
	}
	var wait sync.WaitGroup
	wait.Go(func() { _, _ = io.Copy(up, r); _ = up.(*net.TCPConn).CloseWrite() })
	wait.Go(func() { _, _ = io.Copy(c, up); _ = c.CloseWrite() })
	wait.Wait()
}

func (b *testBoundary) carryUDP(c net.Conn, r *bufio.Reader, target tunnel.Target) {
	up, err := net.Dial("udp", b.allow[target.String()])
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	_, _ = io.WriteString(c, tunnel.Accepted(flow.UDP))
	go func() {
		buf := make([]byte, tunnel.MaxPayload)
		for {
			n, err := up.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(tunnel.AppendDatagram(nil, buf[:n])); err != nil {
				return
			}
		}
	}()
	for d := tunnel.NewDatagrams(r); ; {
		payload, err := d.Next()
		if err != nil {
			return
		}
		if _, err := up.Write(payload); err != nil {
			return
		}
	}
}

func (b *testBoundary) note(t tunnel.Target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, t.Transport.String()+" "+t.String())
}

// requests are all that it was asked so far.
func (b *testBoundary) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.asked...)
}

// echo is a server of ours on loopback.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.(*net.TCPConn).CloseWrite()
			}()
		}
	}()
	return l.Addr().String()
}

// echoUDP answers each datagram.
func echoUDP(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); _ = c.Close() })
	go func() {
		buf := make([]byte, 65536)
		for ctx.Err() == nil {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(buf[:n], from)
		}
	}()
	return c.LocalAddr().String()
}
