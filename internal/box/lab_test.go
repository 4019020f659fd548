package box

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/net/dns/dnsmessage"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/dest/internet"
	"skep.dev/skep/internal/dest/inward"
	"skep.dev/skep/internal/dest/model"
	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/sys"
)

func deadline() time.Time { return time.Now().Add(10 * time.Second) }

func query(host string, v6 bool) []byte {
	kind := dnsmessage.TypeA
	if v6 {
		kind = dnsmessage.TypeAAAA
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 9}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(host + "."), Type: kind, Class: 1}}}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func lookup(t *testing.T, reply []byte) netip.Addr {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(reply); err != nil || len(m.Answers) != 1 {
		t.Logf("answer %+v, %v", m, err)
		return netip.Addr{}
	}
	switch b := m.Answers[0].Body.(type) {
	case *dnsmessage.AResource:
		return netip.AddrFrom4(b.A)
	case *dnsmessage.AAAAResource:
		return netip.AddrFrom16(b.AAAA)
	}
	return netip.Addr{}
}

// daemon is skepd's side of the box, in memory.
type daemon struct {
	assignment *skepv1.Assignment
	ready      chan *skepv1.ReadyRequest
	end        chan struct{}
	updates    chan *skepv1.ResolverUpdate

	mu      sync.Mutex
	records []*skepv1.FlowRecord
	broken  bool
	refuse  string        // the reason why no intent is taken, if any
	left    uint64        // bytes to lease, a MiB at once
	spent   uint64        // as the box told it at its end
	added   chan struct{} // one for each request that was recorded
}

func (d *daemon) Watch(ctx context.Context, q *connect.Request[skepv1.WatchRequest], out *connect.ServerStream[skepv1.WatchResponse]) error {
	if err := out.Send(&skepv1.WatchResponse{Event: &skepv1.WatchResponse_Assignment{Assignment: d.assignment}}); err != nil {
		return err
	}
	end := d.end
	for {
		select {
		case <-end:
			_ = out.Send(&skepv1.WatchResponse{Event: &skepv1.WatchResponse_End{End: &skepv1.EndOfCell{}}})
			end = nil
		case u := <-d.updates:
			_ = out.Send(&skepv1.WatchResponse{Event: &skepv1.WatchResponse_Resolver{Resolver: u}})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *daemon) Record(_ context.Context, q *connect.Request[skepv1.RecordRequest]) (*connect.Response[skepv1.RecordResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("disk full"))
	}
	answer := &skepv1.RecordResponse{}
	for i, r := range q.Msg.Records {
		if d.refuse != "" && r.Kind == skepv1.FlowRecord_KIND_INTENT {
			answer.Refused = append(answer.Refused, &skepv1.RefusedFlow{Index: uint32(i), Reason: d.refuse})
			continue
		}
		d.records = append(d.records, r)
	}
	select {
	case d.added <- struct{}{}:
	default:
	}
	return connect.NewResponse(answer), nil
}

func (d *daemon) Lease(_ context.Context, q *connect.Request[skepv1.LeaseRequest]) (*connect.Response[skepv1.LeaseResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(d.left, 1<<20)
	d.left -= n
	return connect.NewResponse(&skepv1.LeaseResponse{Bytes: n}), nil
}

func (d *daemon) Ready(_ context.Context, q *connect.Request[skepv1.ReadyRequest]) (*connect.Response[skepv1.ReadyResponse], error) {
	d.mu.Lock()
	d.spent = q.Msg.Spent
	d.mu.Unlock()
	d.ready <- q.Msg
	return connect.NewResponse(&skepv1.ReadyResponse{}), nil
}

func (d *daemon) all() []*skepv1.FlowRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*skepv1.FlowRecord(nil), d.records...)
}

// find waits until a record is there.
func (d *daemon) find(t *testing.T, what string, match func(*skepv1.FlowRecord) bool) *skepv1.FlowRecord {
	t.Helper()
	timeout := time.After(5 * time.Second)
	for {
		for _, r := range d.all() {
			if match(r) {
				return r
			}
		}
		select {
		case <-d.added:
		case <-timeout:
			t.Fatalf("no record %s among %v", what, d.all())
		}
	}
}

// lab is a box in front of a cell's namespace, served by a daemon and a gateway.
type lab struct {
	*cellNet
	daemon *daemon
	line   *lifeline.Asker
	result chan error
	kill   context.CancelFunc
}

// serveH2 serves HTTP/2 with prior knowledge on one descriptor.
func serveH2(t *testing.T, h http.Handler) *os.File {
	t.Helper()
	a, b, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.FileConn(b)
	b.Close()
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: &protocols}
	l := &oneConn{c: make(chan net.Conn, 1), addr: c.LocalAddr()}
	l.c <- c
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return a
}

type oneConn struct {
	c    chan net.Conn
	once sync.Once
	addr net.Addr
}

func (l *oneConn) Accept() (net.Conn, error) {
	c, ok := <-l.c
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l *oneConn) Close() error   { l.once.Do(func() { close(l.c) }); return nil }
func (l *oneConn) Addr() net.Addr { return l.addr }

// start runs a box in this process; assignment is completed with the cell's
// identity.
func start(t *testing.T, a *skepv1.Assignment, gateway http.Handler) *lab {
	t.Helper()
	return startAs(t, a, gateway, func(ctx context.Context, c Config) error {
		c.Internet = &internet.Dest{}
		c.Gateway = func(use func() (*h2.Conn, func())) boundary.Dest { return model.Dest{Gateway: use} }
		c.Inward = func(reach Reach) boundary.Dest { return inward.New(reach) }
		return Run(ctx, c)
	})
}

func startAs(t *testing.T, a *skepv1.Assignment, gateway http.Handler, run func(context.Context, Config) error) *lab {
	t.Helper()
	world(t)
	l := &lab{cellNet: newCellNet(t), result: make(chan error, 1)}
	a.Cell, a.Agent, a.Generation = "cell", "agent.example", 3
	l.daemon = &daemon{assignment: a, ready: make(chan *skepv1.ReadyRequest, 4), end: make(chan struct{}), updates: make(chan *skepv1.ResolverUpdate), added: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.Handle(skepv1connect.NewBoxServiceHandler(l.daemon))
	line, lineEnd, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	l.line = lifeline.NewAsker(line)
	go l.line.Run()
	t.Cleanup(l.line.Close)
	c := Config{Daemon: serveH2(t, mux), Warden: l.box, Lifeline: lineEnd}
	if gateway != nil {
		c.Model = serveH2(t, gateway)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.kill = cancel
	t.Cleanup(cancel)
	go func() { l.result <- run(ctx, c) }()
	select {
	case r := <-l.daemon.ready:
		if r.Done || r.Error != "" {
			t.Fatalf("the box is not ready: %v", r)
		}
	case err := <-l.result:
		t.Fatalf("the box ended: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("the box is not ready in time")
	}
	return l
}

// finish ends the cell as the daemon does.
func (l *lab) finish() {
	l.t.Helper()
	close(l.daemon.end)
	select {
	case r := <-l.daemon.ready:
		if !r.Done {
			l.t.Errorf("%v", r)
		}
	case <-time.After(10 * time.Second):
		l.t.Fatal("the box did not end")
	}
	if err := <-l.result; err != nil {
		l.t.Errorf("the box ended with %v", err)
	}
}

// echoAt serves at an address of the world.
func echoAt(t *testing.T, at string) uint16 {
	t.Helper()
	world(t)
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	_, p, _ := net.SplitHostPort(ln.Addr().String())
	n, _ := strconv.ParseUint(p, 10, 16)
	return uint16(n)
}

// name is a rule for an exact name.
func nameRule(host string, resolve string, ports ...uint16) *skepv1.BoxRule {
	r := &skepv1.BoxRule{Id: host, Line: 4, Name: host, Tcp: true}
	if resolve != "" {
		r.Resolve = []string{resolve}
	}
	for _, p := range ports {
		r.Ports = append(r.Ports, &skepv1.BoxPorts{First: uint32(p), Last: uint32(p)})
	}
	return r
}

// says writes and reads back over an echo.
func says(t *testing.T, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("echo of %q is %q, %v", text, got, err)
	}
}

func (d *daemon) Draft(context.Context, *connect.Request[skepv1.DraftRequest]) (*connect.Response[skepv1.DraftResponse], error) {
	return connect.NewResponse(&skepv1.DraftResponse{Card: "card"}), nil
}

func (d *daemon) Asked(_ context.Context, q *connect.Request[skepv1.AskedRequest]) (*connect.Response[skepv1.AskedResponse], error) {
	return connect.NewResponse(&skepv1.AskedResponse{State: map[string]string{"card": "granted"}[q.Msg.Card]}), nil
}

func (d *daemon) Trust(context.Context, *connect.Request[skepv1.TrustRequest]) (*connect.Response[skepv1.TrustResponse], error) {
	return connect.NewResponse(&skepv1.TrustResponse{}), nil
}

func (d *daemon) UseSecret(context.Context, *connect.Request[skepv1.UseSecretRequest]) (*connect.Response[skepv1.UseSecretResponse], error) {
	return connect.NewResponse(&skepv1.UseSecretResponse{}), nil
}
