package intercept

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	t       testing.TB
	secrets *Secrets
	gate    *boundary.Gate
	port    uint16
	client  *http.Client
	ends    chan boundary.End
	pair    func() (agent, box net.Conn)
	dial    func() (net.Conn, error) // the destination

	mu       sync.Mutex
	uses     []string
	deaf     bool         // the record cannot be written
	received bytes.Buffer // by the destination, in the clear
}

// setup says what is unusual in a lab.
type setup struct {
	signed string   // whom the destination's certificate is for
	as     []string // places of the secret
	alpn   []string // what the destination speaks
	memory bool     // no sockets: for a clock of the test's own
}

func newLab(t testing.TB, protocol, signed string, as []string, serve http.HandlerFunc) *lab {
	return setup{signed: signed, as: as, alpn: []string{protocol}}.build(t, serve)
}

func (s setup) build(t testing.TB, serve http.HandlerFunc) *lab {
	t.Helper()
	l := &lab{t: t, ends: make(chan boundary.End, 100), port: 443}
	world, err := authority.New([]string{s.signed}, time.Now())
	check(t, err)
	leaf, err := world.Leaf(s.signed, time.Now())
	check(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12, NextProtos: s.alpn}
	if s.memory {
		l.pair = func() (net.Conn, net.Conn) { return net.Pipe() }
		up := make(conns)
		l.dial = func() (net.Conn, error) {
			a, b := net.Pipe()
			up <- b
			return a, nil
		}
		l.serve(up, config, serve)
	} else {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		l.port = uint16(listener.Addr().(*net.TCPAddr).Port)
		l.pair, l.dial = l.sockets, func() (net.Conn, error) { return net.Dial("tcp", listener.Addr().String()) }
		l.serve(listener, config, serve)
	}

	binding := secret.Binding{Name: "gh", Source: secret.Source{File: "/k"}, Hosts: []string{"api.test"}, Ports: []uint16{l.port}}
	for _, word := range s.as {
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

func check(t testing.TB, err error) {
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

// serve is the destination, for both protocols.
func (l *lab) serve(listener net.Listener, config *tls.Config, handler http.Handler) {
	in := make(conns)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, Protocols: &http.Protocols{}}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // as far as it can see
	go func() { _ = server.Serve(in) }()
	go func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				c := tls.Server(raw, config)
				if c.Handshake() != nil {
					_ = raw.Close()
					return
				}
				in <- &seenConn{c, l}
			}()
		}
	}()
	l.t.Cleanup(func() { _, _ = listener.Close(), server.Close() })
}

// conns is a listener that is given its connections.
type conns chan net.Conn

func (c conns) Accept() (net.Conn, error) {
	one, open := <-c
	if !open {
		return nil, net.ErrClosed
	}
	return one, nil
}

func (c conns) Addr() net.Addr { return &net.TCPAddr{} }

func (c conns) Close() error {
	close(c)
	return nil
}

func (l *lab) sockets() (net.Conn, net.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(l.t, err)
	defer func() { _ = listener.Close() }()
	a, err := net.Dial("tcp", listener.Addr().String())
	check(l.t, err)
	b, err := listener.Accept()
	check(l.t, err)
	return a, b
}

// agent is the agent's end of a new flow through the gate.
func (l *lab) agent() net.Conn {
	a, b := l.pair()
	q := flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Port: l.port, Name: "api.test", Count: 1}
	go l.gate.Serve(context.Background(), q, boundary.Connected{Conn: b})
	return a
}

// Open makes the lab the gate's destination.
func (l *lab) Open(_ context.Context, p boundary.Permit) (boundary.Upstream, error) {
	c, err := l.dial()
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

// seenConn keeps what the destination has got, below its HTTP.
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

func writeFile(path string, text []byte) error { return os.WriteFile(path, text, 0o600) }

// door is a port of loopback, each of whose connections is a flow through the gate.
func (l *lab) door() (port int, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(l.t, err)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				a := l.agent()
				go func() {
					_, _ = io.Copy(a, c)
					_ = a.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(c, a)
				_ = c.Close()
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port, func() { _ = listener.Close() }
}
