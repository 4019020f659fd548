package listener

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/dest/internet"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
)

// lab is a listener on a Unix socket, with the real gate and destination behind it and
// an echo server on loopback.
type lab struct {
	*Listener
	t    testing.TB
	path string
	port uint16
	from net.Listener
	end  context.CancelFunc
	over chan error

	mu      sync.Mutex
	records []boundary.Record
	changed chan struct{}
}

func (l *lab) Record(_ context.Context, r boundary.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	close(l.changed)
	l.changed = make(chan struct{})
	return nil
}

// wait gives the records once there are n.
func (l *lab) wait(n int) []boundary.Record {
	l.t.Helper()
	late := time.After(10 * time.Second)
	for {
		l.mu.Lock()
		have, changed := append([]boundary.Record(nil), l.records...), l.changed
		l.mu.Unlock()
		if len(have) >= n {
			return have
		}
		select {
		case <-changed:
		case <-late:
			l.t.Fatalf("%d records of %d: %+v", len(have), n, have)
		}
	}
}

func newLab(t testing.TB, change func(*Listener)) *lab {
	t.Helper()
	l := &lab{t: t, path: filepath.Join(t.TempDir(), "s"), over: make(chan error, 1), changed: make(chan struct{})}
	l.port = echo(t)
	l.Listener = &Listener{UDP: true, Gate: &boundary.Gate{
		Identity: boundary.Identity{Cell: "c", Agent: "a", Generation: 1}, Recorder: l, Refusals: boundary.NewRefusals(l, time.Now),
		Internet: &internet.Dest{}, Flows: 100, Now: time.Now,
	}}
	ports := right.Ports{{First: l.port, Last: l.port}}
	here := netip.MustParseAddr("127.0.0.1")
	if err := l.Gate.Install(policy.Policy{Version: "1", Ceiling: policy.Ceiling{NoFloor: true}, Rules: []policy.Rule{
		{ID: "name", Name: "ok.test", Ports: ports, TCP: true, UDP: true, Resolve: []netip.Addr{here}},
		{ID: "ip", IP: here, Ports: ports, TCP: true},
	}}); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(l.Listener)
	}
	var err error
	if l.from, err = net.Listen("unix", l.path); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.end = cancel
	go func() { l.over <- l.Serve(ctx, l.from) }()
	t.Cleanup(func() { _ = l.from.Close(); cancel() })
	return l
}

// echo serves TCP and UDP at one port of loopback.
func echo(t testing.TB) uint16 {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(ln.Addr().String())
	u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close(); _ = u.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	go func() {
		b := make([]byte, 65535)
		for {
			n, from, err := u.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = u.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	return at.Port()
}

// dial connects; send replaces P by the echo server's port.
func (l *lab) dial() *net.UnixConn {
	l.t.Helper()
	c, err := net.Dial("unix", l.path)
	if err != nil {
		l.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	l.t.Cleanup(func() { _ = c.Close() })
	return c.(*net.UnixConn)
}

// answer reads one head.
func answer(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String()
		}
	}
}
