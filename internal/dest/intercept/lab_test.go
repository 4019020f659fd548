package intercept

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/secret"
	"skep.dev/skep/internal/secret/authority"
)

const (
	mark  = "skep-secret-gh-0123abcd"
	value = `v4l"ue+/=\secret`
)

// lab is a destination of ours for api.test behind a gate, and a client before it that
// trusts the cell's authority alone.
type lab struct {
	t       *testing.T
	secrets *Secrets
	gate    *boundary.Gate
	port    uint16
	client  *http.Client
	ends    chan boundary.End

	mu       sync.Mutex
	uses     []string
	deaf     bool         // the record cannot be written
	received bytes.Buffer // by the destination, in the clear
}

func newLab(t *testing.T, signed string, as []string, serve http.HandlerFunc) *lab {
	t.Helper()
	l := &lab{t: t, ends: make(chan boundary.End, 100)}
	world, err := authority.New([]string{signed}, time.Now())
	check(t, err)
	leaf, err := world.Leaf(signed, time.Now())
	check(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	l.port = uint16(listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: serve, ReadHeaderTimeout: time.Minute}
	go func() {
		_ = server.Serve(seen{tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}), l})
	}()
	t.Cleanup(func() { _ = server.Close() })

	binding := secret.Binding{Name: "gh", Source: secret.Source{File: "/k"}, Hosts: []string{"api.test"}, Ports: []uint16{l.port}}
	for _, word := range as {
		place, err := secret.ParsePlace(word)
		check(t, err)
		binding.As = append(binding.As, place)
	}
	binding, err = secret.NewBinding(binding)
	check(t, err)
	keeper, err := secret.NewKeeper([]secret.Bound{{Binding: binding, Placeholder: mark}})
	check(t, err)
	v, err := secret.NewValue([]byte(value))
	check(t, err)
	keeper.Set("gh", v, time.Time{})
	own, err := authority.New(keeper.Hosts(), time.Now())
	check(t, err)
	l.secrets = &Secrets{Keeper: keeper, Authority: own, Roots: pool(world), Now: time.Now, Record: l.record}
	ports, err := right.NewPorts(right.PortRange{First: l.port, Last: l.port})
	check(t, err)
	l.gate = &boundary.Gate{Identity: boundary.Identity{Cell: "c"}, Recorder: quiet{}, Refusals: boundary.NewRefusals(quiet{}, time.Now), Internet: l, Flows: 100, Now: time.Now}
	check(t, l.gate.Install(policy.Policy{Rules: []policy.Rule{{ID: "r", Name: "api.test", Ports: ports, TCP: true, Resolve: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}, Ceiling: policy.Ceiling{NoFloor: true}}))
	l.client = &http.Client{Transport: &http.Transport{
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return l.agent(), nil },
		TLSClientConfig: &tls.Config{RootCAs: pool(own), MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, ExpectContinueTimeout: time.Minute,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(l.client.CloseIdleConnections)
	return l
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pool(a *authority.Authority) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(a.Root())
	return p
}

func (l *lab) url(path string) string {
	return "https://api.test:" + strconv.Itoa(int(l.port)) + path
}

// agent is the agent's end of a new flow through the gate.
func (l *lab) agent() net.Conn {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(l.t, err)
	defer func() { _ = listener.Close() }()
	a, err := net.Dial("tcp", listener.Addr().String())
	check(l.t, err)
	b, err := listener.Accept()
	check(l.t, err)
	q := flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Port: l.port, Name: "api.test", Count: 1}
	go l.gate.Serve(context.Background(), q, boundary.Connected{Conn: b})
	return a
}

// Open makes the lab the gate's destination.
func (l *lab) Open(_ context.Context, p boundary.Permit) (boundary.Upstream, error) {
	c, err := net.Dial("tcp", netip.AddrPortFrom(p.Resolve()[0], p.Request().Port).String())
	return &upstream{l, p, c}, err
}

type upstream struct {
	l *lab
	p boundary.Permit
	c net.Conn
}

func (*upstream) Address() netip.AddrPort { return netip.AddrPort{} }
func (*upstream) Dropped() int            { return 0 }

func (u *upstream) Carry(ctx context.Context, agent net.Conn) boundary.End {
	first, err := route.ReadFirst(agent, func() {})
	if err != nil || !u.p.DecideInner(first.Inner).Allowed() || !u.l.secrets.Bound(u.p.Request()) {
		boundary.Reset(agent)
		boundary.Reset(u.c)
		return boundary.End{Reason: flow.TLSNameMismatch}
	}
	end := u.l.secrets.Carry(ctx, u.p, agent, u.c, first.Bytes(), first.Inner)
	u.l.ends <- end
	return end
}

func (l *lab) record(_ context.Context, _ flow.ID, host string, use secret.Use, why flow.Reason) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deaf {
		return errors.New("no room")
	}
	l.uses = append(l.uses, host+" "+use.Secret+" "+use.Place.String()+" "+why.Token())
	return nil
}

type quiet struct{}

func (quiet) Record(context.Context, boundary.Record) error { return nil }

// seen keeps what the destination has got, below its HTTP.
type seen struct {
	net.Listener
	l *lab
}

func (s seen) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	return &seenConn{c, s.l}, err
}

type seenConn struct {
	net.Conn
	l *lab
}

func (c *seenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.received.Write(b[:n])
	return n, err
}

func (l *lab) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.received.Bytes(), []byte(text))
}
