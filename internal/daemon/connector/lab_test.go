package connector

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/box/tunneled"
	"skep.dev/skep/internal/dest/internet"
	"skep.dev/skep/internal/dest/inward"
	"skep.dev/skep/internal/policy"
)

// TestMain is the box, too: the connector starts this program as it would skep-box.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "tunnel" {
		if err := serveTunnels(); err != nil {
			fmt.Fprintln(os.Stderr, "box:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serveTunnels() error {
	c, err := tunneled.Inherit()
	if err != nil {
		return err
	}
	c.Internet = &internet.Dest{} // unconfined: the race detector needs more memory than a box may have
	c.Inward = func(reach tunneled.Reach) boundary.Dest { return inward.New(reach) }
	return tunneled.Run(context.Background(), c)
}

// lab is a connector whose boxes are this program, with an echo server on loopback.
type lab struct {
	*Connector
	t       *testing.T
	port    uint16
	records string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "c") // a short path: it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l := &lab{t: t, records: filepath.Join(dir, "records")}
	sink, err := OpenSink(l.records)
	if err != nil {
		t.Fatal(err)
	}
	l.Connector = &Connector{
		Box: self, Dir: filepath.Join(dir, "s"), Unverified: true, Sink: sink, UDP: true,
		Ceiling: func() (policy.Ceiling, error) {
			ports, _ := everyPort()
			return policy.Ceiling{Open: []policy.Range{{CIDR: netip.MustParsePrefix("127.0.0.0/8"), Ports: ports}}}, nil
		},
		Names: func() *skepv1.ResolverUpdate { return &skepv1.ResolverUpdate{} },
	}
	if err := os.Mkdir(l.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	l.port = netip.MustParseAddrPort(ln.Addr().String()).Port()
	return l
}

// bundle allows names, all of which are this host.
func (l *lab) bundle(id string, names ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "version: v1\nagent: {id: %s}\n", id)
	for i, n := range names {
		if i == 0 {
			b.WriteString("egress:\n  allow:\n")
		}
		fmt.Fprintf(&b, "    - {name: %s, ports: [%d], resolve: [127.0.0.1]}\n", n, l.port)
	}
	return []byte(b.String())
}

func (l *lab) attach(id string, names ...string) Attached {
	l.t.Helper()
	a, err := l.Attach(l.t.Context(), "b.yaml", l.bundle(id, names...), Life{})
	if err != nil {
		l.t.Fatal(err)
	}
	return a
}

// tunnel asks for a name; the connection is open if the status is 200.
func (l *lab) tunnel(socket, host string) (net.Conn, int) {
	l.t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(c, "CONNECT %s:%d HTTP/1.1\r\nHost: %[1]s:%[2]d\r\n\r\n", host, l.port)
	r := bufio.NewReader(c)
	status := 0
	first, err := r.ReadString('\n')
	if err != nil {
		l.t.Fatal(err)
	}
	_, _ = fmt.Sscanf(first, "HTTP/1.1 %d", &status)
	for line := first; line != "\r\n" && err == nil; {
		line, err = r.ReadString('\n')
	}
	return c, status
}

// lives says whether an open tunnel still echoes.
func lives(c net.Conn) bool {
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

// kinds are the records of one agent, in order.
func (l *lab) kinds(id string) (out []map[string]any) {
	l.t.Helper()
	text, err := os.ReadFile(l.records)
	if err != nil {
		l.t.Fatal(err)
	}
	for raw := range bytes.Lines(text) {
		m := map[string]any{}
		if err := json.Unmarshal(raw, &m); err != nil {
			l.t.Fatalf("%q: %v", raw, err)
		}
		if m["sandbox"] == id {
			out = append(out, m)
		}
	}
	return out
}
