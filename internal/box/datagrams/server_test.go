package datagrams

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/dest/internet"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/route"
)

// lab is a server behind a socket of loopback, with a conntrack of the test's own.
type lab struct {
	*Server
	socket *net.UDPConn
	ctx    context.Context
	end    context.CancelFunc

	mu      sync.Mutex
	origins map[netip.AddrPort]netip.AddrPort
	forgot  map[netip.AddrPort]int
	asked   int
	hold    chan struct{} // closed when Origin may answer
	patient bool          // Origin waits for that however long it takes
	records chan boundary.Record
}

func (l *lab) Record(_ context.Context, r boundary.Record) error { l.records <- r; return nil }

func (l *lab) Origin(ctx context.Context, source netip.AddrPort) (netip.AddrPort, error) {
	if l.patient {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-l.hold:
	case <-ctx.Done():
		return netip.AddrPort{}, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	to, ok := l.origins[source]
	if !ok {
		return to, errors.New("no such flow")
	}
	return to, nil
}

func (l *lab) Forget(_ context.Context, source netip.AddrPort) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgot[source]++
	return nil
}

func (l *lab) next(t *testing.T, kind boundary.Kind) boundary.Record {
	t.Helper()
	for late := time.After(10 * time.Second); ; {
		select {
		case r := <-l.records:
			if r.Kind == kind {
				return r
			}
		case <-late:
			t.Fatalf("no record of kind %v", kind)
		}
	}
}

func listen(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func at(c *net.UDPConn) netip.AddrPort {
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

const host = "ok.test"

// newLab lets host through at the ports of peers, which are on loopback.
func newLab(t *testing.T, idle time.Duration, peers ...*net.UDPConn) *lab {
	l := &lab{
		socket: listen(t), origins: map[netip.AddrPort]netip.AddrPort{}, forgot: map[netip.AddrPort]int{},
		hold: make(chan struct{}), records: make(chan boundary.Record, 4096),
	}
	_ = l.socket.SetDeadline(time.Time{})
	l.ctx, l.end = context.WithCancel(context.Background())
	gate := &boundary.Gate{
		Identity: boundary.Identity{Cell: "c", Agent: "a", Generation: 1}, Recorder: l, Refusals: boundary.NewRefusals(l, time.Now),
		Internet: &internet.Dest{}, Flows: 100, Idle: idle, Now: time.Now,
	}
	p := policy.Policy{Version: "1", Ceiling: policy.Ceiling{NoFloor: true}}
	for _, peer := range peers {
		port := at(peer).Port()
		p.Rules = append(p.Rules, policy.Rule{ID: peer.LocalAddr().String(), Name: host, UDP: true, Ports: right.Ports{{First: port, Last: port}}, Resolve: []netip.Addr{at(peer).Addr()}})
	}
	if err := gate.Install(p); err != nil {
		t.Fatal(err)
	}
	l.Server = &Server{Gate: gate, Table: route.NewTable(10), Kernel: l}
	l.begin()
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(l.ctx, l.socket) }()
	t.Cleanup(func() {
		l.end()
		_ = l.socket.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		l.Wait()
		if n := l.waiting.Load(); n != 0 || len(l.sources) != 0 || len(l.places) != 0 {
			t.Errorf("%d bytes, %d sources, %d places are left", n, len(l.sources), len(l.places))
		}
	})
	return l
}

// leads makes conntrack say that a source sends to a port of host.
func (l *lab) leads(t *testing.T, from *net.UDPConn, port uint16) {
	t.Helper()
	addr, _, err := l.Table.Assign(host, false)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.origins[at(from)] = netip.AddrPortFrom(addr, port)
}

func (l *lab) send(t *testing.T, from *net.UDPConn, text string) {
	t.Helper()
	if _, err := from.WriteToUDPAddrPort([]byte(text), at(l.socket)); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, c *net.UDPConn, want string) netip.AddrPort {
	t.Helper()
	b := make([]byte, 100)
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil || string(b[:n]) != want {
		t.Fatalf("%q instead of %q, %v", b[:n], want, err)
	}
	return from
}

// Whatever conntrack would say later, a flow's datagrams go to its one destination; the
// next flow of the source goes to the next.
func TestSourceKeepsItsDestination(t *testing.T) {
	one, two, agent := listen(t), listen(t), listen(t)
	l := newLab(t, 300*time.Millisecond, one, two)
	close(l.hold)
	l.leads(t, agent, at(one).Port())
	l.send(t, agent, "first")
	back := receive(t, one, "first")
	l.leads(t, agent, at(two).Port())
	l.send(t, agent, "second")
	if again := receive(t, one, "second"); again != back {
		t.Errorf("from %s, and before from %s", again, back)
	}
	if _, err := one.WriteToUDPAddrPort([]byte("answer"), back); err != nil {
		t.Fatal(err)
	}
	if from := receive(t, agent, "answer"); from != at(l.socket) {
		t.Errorf("the answer is from %s", from)
	}
	if r := l.next(t, boundary.Outcome); r.Verdict.Reason != flow.IdleTimeout || r.Up != 11 || r.Down != 6 || r.Request.Name != host || r.Request.Transport != flow.UDP {
		t.Errorf("%+v", r)
	}
	for b := make([]byte, 100); ; { // what comes while the flow is forgotten is lost
		l.send(t, agent, "third")
		_ = two.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, _, err := two.ReadFromUDPAddrPort(b); err == nil && string(b[:n]) == "third" {
			break
		}
		if t.Context().Err() != nil || len(l.records) > 100 {
			t.Fatal("the next flow of the source does not go to the next destination")
		}
	}
}

// What leads to the box itself, to nothing, or to what no rule has, goes nowhere; the
// kernel is told to judge anew.
func TestRefusedIsForgotten(t *testing.T) {
	peer, unknown, loop, denied := listen(t), listen(t), listen(t), listen(t)
	l := newLab(t, time.Minute, peer)
	close(l.hold)
	l.leads(t, denied, at(peer).Port()+1)
	l.mu.Lock()
	l.origins[at(loop)] = at(l.socket)
	l.mu.Unlock()
	for from, want := range map[*net.UDPConn]flow.Reason{unknown: flow.NoOriginalDestination, loop: flow.NoOriginalDestination, denied: flow.PortNotAllowed} {
		l.send(t, from, "x")
		if r := l.next(t, boundary.Denied); r.Verdict.Reason != want || r.Request.Transport != flow.UDP {
			t.Errorf("%+v, want %v", r, want)
		}
	}
	l.end()
	_ = l.socket.Close()
	l.Wait()
	for _, from := range []*net.UDPConn{unknown, loop, denied} {
		if l.forgot[at(from)] != 1 {
			t.Errorf("%s was forgotten %d times", at(from), l.forgot[at(from)])
		}
	}
}

// A cell with more sources than there are places, or payloads than may wait, costs no
// more than those.
func TestHogIsBounded(t *testing.T) {
	l := newLab(t, time.Minute)
	l.patient = true
	from := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), 9)
	}
	big := make([]byte, 60_000)
	for i := range MaxSources {
		l.take(l.ctx, l.socket, from(i), big)
		for range 3 * maxWaiting {
			l.give(from(i), big)
		}
	}
	if n := l.waiting.Load(); n > maxBytes {
		t.Errorf("%d bytes wait", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	l.take(ctx, l.socket, from(MaxSources), big)
	if ctx.Err() == nil || l.give(from(MaxSources), big) {
		t.Error("there is a place for one more")
	}
	close(l.hold)
}
