package inward

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// ledger keeps records.
type ledger struct {
	mu  sync.Mutex
	all []boundary.Record
}

func (l *ledger) Record(_ context.Context, r boundary.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
	return nil
}

func (l *ledger) last() boundary.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[len(l.all)-1]
}

// pair is a TCP connection.
func pair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err == nil {
		server, err = l.AcceptTCP()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = client.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func gate(t *testing.T, d boundary.Dest) (*boundary.Gate, *ledger) {
	t.Helper()
	l := &ledger{}
	g := &boundary.Gate{Identity: boundary.Identity{Cell: "c"}, Recorder: l, Refusals: boundary.NewRefusals(l, time.Now), Inward: d, Flows: 8, Now: time.Now}
	if err := g.Install(policy.Policy{Ingress: []policy.Ingress{{Port: 8080, ID: policy.Forward, Person: true}}}); err != nil {
		t.Fatal(err)
	}
	return g, l
}

func delivery() flow.Request {
	return flow.Request{ID: flow.NewID(), Direction: flow.In, Wire: flow.Native, Transport: flow.TCP, Addr: policy.IngressAt(), Port: 8080, Count: 1}
}

// Bytes pass both ways, whole and counted; half-close stays half-close, reset stays reset.
func TestCarry(t *testing.T) {
	var agent *net.TCPConn
	g, l := gate(t, New(func(_ context.Context, port uint16) (net.Conn, error) {
		if port != 8080 {
			t.Errorf("port %d is dialed", port)
		}
		near, far := pair(t)
		agent = far
		return near, nil
	}))
	serve := func(with func(caller, agent *net.TCPConn)) {
		t.Helper()
		client, server := pair(t)
		done := make(chan struct{})
		opened := make(chan struct{})
		go func() {
			g.Serve(t.Context(), delivery(), &arrival{boundary.Connected{Conn: server}, opened})
			close(done)
		}()
		<-opened
		with(client, agent)
		<-done
	}
	const size = 8 << 20
	serve(func(caller, agent *net.TCPConn) {
		go func() { _, _ = io.CopyN(caller, zeros{}, size); _ = caller.CloseWrite() }()
		n, err := io.Copy(io.Discard, agent)
		if n != size || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		_, _ = io.WriteString(agent, "late")
		_ = agent.CloseWrite()
		if got, err := io.ReadAll(caller); string(got) != "late" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
	if r := l.last(); r.Up != size || r.Down != 4 || r.Decision != "allow" || !r.Address.IsValid() {
		t.Errorf("%+v", r)
	}
	serve(func(caller, agent *net.TCPConn) {
		_ = agent.SetLinger(0)
		agent.Close()
		if _, err := io.ReadAll(caller); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v", err)
		}
	})
	g.Idle = 50 * time.Millisecond
	serve(func(caller, _ *net.TCPConn) { _, _ = io.ReadAll(caller) })
	if r := l.last(); r.Verdict.Reason != flow.IdleTimeout {
		t.Errorf("%+v", r)
	}
}

type arrival struct {
	boundary.Connected
	opened chan struct{}
}

func (a *arrival) Open() net.Conn { close(a.opened); return a.Connected.Open() }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// BI-8 in the small: an agent that does not listen is unreachable, and its caller is reset.
func TestUnreachable(t *testing.T) {
	for what, connect := range map[string]Connect{
		"refused":      func(context.Context, uint16) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
		"not a stream": func(context.Context, uint16) (net.Conn, error) { a, _ := net.Pipe(); return a, nil },
	} {
		g, l := gate(t, New(connect))
		client, server := pair(t)
		g.Serve(t.Context(), delivery(), boundary.Connected{Conn: server})
		if _, err := io.ReadAll(client); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", what, err)
		}
		if r := l.last(); r.Verdict.Reason != flow.IngressUnreachable || r.Decision != "fail" || r.Kind != boundary.Outcome {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

// Nothing is dialed without a permit of the gate (B5).
func TestZeroPermit(t *testing.T) {
	d := New(func(context.Context, uint16) (net.Conn, error) {
		t.Error("it was dialed")
		return nil, errors.New("no")
	})
	if _, err := d.Open(t.Context(), boundary.Permit{}); err == nil {
		t.Error("it was opened")
	}
}
