package internet

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
)

// lab is a gate with the real destination behind it, on loopback.
type lab struct {
	t      testing.TB
	gate   *boundary.Gate
	dest   *Dest
	policy policy.Policy
	mu     sync.Mutex
	recs   []boundary.Record
	done   chan struct{} // one for each flow that is over
}

func (l *lab) Record(_ context.Context, r boundary.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recs = append(l.recs, r)
	return nil
}

func newLab(t testing.TB, rules ...policy.Rule) *lab {
	l := &lab{t: t, dest: &Dest{}, done: make(chan struct{}, 100)}
	l.gate = &boundary.Gate{Identity: boundary.Identity{Cell: "c", Agent: "a"}, Recorder: l, Refusals: boundary.NewRefusals(l, time.Now), Internet: l.dest, Flows: 100, Now: time.Now}
	l.install(policy.Policy{Rules: rules, Ceiling: policy.Ceiling{NoFloor: true}})
	return l
}

func (l *lab) install(p policy.Policy) {
	l.t.Helper()
	l.policy = p
	if err := l.gate.Install(p); err != nil {
		l.t.Fatal(err)
	}
}

func one(t testing.TB, port uint16) right.Ports {
	p, err := right.NewPorts(right.PortRange{First: port, Last: port})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// local is a rule for a name that resolves to loopback.
func local(t testing.TB, host string, port uint16) policy.Rule {
	return policy.Rule{ID: host, Name: host, Ports: one(t, port), TCP: true, Resolve: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
}

// connect gives the agent's end of a flow to a destination.
func (l *lab) connect(dest string, port uint16) *net.TCPConn {
	l.t.Helper()
	q := flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Port: port, Count: 1}
	if a, err := netip.ParseAddr(dest); err == nil {
		q.Addr = a
	} else {
		q.Name = dest
	}
	agent, box := pair(l.t)
	go func() {
		l.gate.Serve(context.Background(), q, boundary.Connected{Conn: box})
		l.done <- struct{}{}
	}()
	_ = agent.SetDeadline(time.Now().Add(20 * time.Second))
	return agent
}

// last waits for the flow to end and gives its last record.
func (l *lab) last() boundary.Record {
	l.t.Helper()
	select {
	case <-l.done:
	case <-time.After(20 * time.Second):
		l.t.Fatal("the flow did not end")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recs[len(l.recs)-1]
}

func pair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	ln := listen(t, "127.0.0.1:0")
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

func listen(t testing.TB, at string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// serve runs a server for each connection; seen counts them.
func serve(t testing.TB, handle func(*net.TCPConn)) (port uint16, seen func() int) {
	return serveAt(t, "127.0.0.1:0", handle)
}

func serveAt(t testing.TB, at string, handle func(*net.TCPConn)) (port uint16, seen func() int) {
	ln := listen(t, at)
	var mu sync.Mutex
	n := 0
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			n++
			mu.Unlock()
			go func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			}()
		}
	}()
	_, p, _ := net.SplitHostPort(ln.Addr().String())
	v, _ := strconv.ParseUint(p, 10, 16)
	return uint16(v), func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}

// zone is a DNS server with answers at will.
type zone struct {
	mu      sync.Mutex
	answers map[string][]netip.Addr
	asked   int
	big     bool // truncate over UDP
}

func (z *zone) questions() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked
}

func (z *zone) reply(q []byte, udp bool) []byte {
	var m dnsmessage.Message
	if m.Unpack(q) != nil {
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked++
	m.Response, m.RCode = true, dnsmessage.RCodeSuccess
	if z.big && udp {
		m.Truncated = true
		b, _ := m.Pack()
		return b
	}
	host := m.Questions[0].Name.String()
	addrs, ok := z.answers[host]
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
	}
	alias := dnsmessage.MustNewName("alias.of." + host)
	m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: 1}, Body: &dnsmessage.CNAMEResource{CNAME: alias}},
		// An answer for a name that nobody asked for must not be taken.
		dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("other."), Class: 1}, Body: &dnsmessage.AResource{A: [4]byte{9, 9, 9, 9}}})
	for _, a := range addrs {
		h := dnsmessage.ResourceHeader{Name: alias, Class: 1}
		switch {
		case a.Is4() && m.Questions[0].Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && m.Questions[0].Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	b, _ := m.Pack()
	return b
}

func (z *zone) serve(t testing.TB) netip.AddrPort {
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			junk := append([]byte{buf[0] + 1}, buf[1:n]...)
			_, _ = u.WriteTo(junk, from) // another id: to be skipped
			_, _ = u.WriteTo(z.reply(buf[:n], true), from)
		}
	}()
	serveAt(t, u.LocalAddr().String(), func(c *net.TCPConn) {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, int(size[0])<<8|int(size[1]))
		_, _ = io.ReadFull(c, q)
		r := z.reply(q, false)
		_, _ = c.Write(append([]byte{byte(len(r) >> 8), byte(len(r))}, r...))
	})
	return netip.MustParseAddrPort(u.LocalAddr().String())
}

// oneTo is every port.
func oneTo() right.Ports { return right.Ports{{First: 1, Last: 65535}} }
