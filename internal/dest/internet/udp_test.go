package internet

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// datagramsTo begins a flow of UDP; reads and writes of its end are whole payloads.
func (l *lab) datagramsTo(host string, port uint16) net.Conn {
	l.t.Helper()
	agent, box := net.Pipe()
	q := flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.H1, Transport: flow.UDP, Name: host, Port: port, Count: 1}
	go func() {
		l.gate.Serve(context.Background(), q, boundary.Connected{Conn: box})
		l.done <- struct{}{}
	}()
	_ = agent.SetDeadline(time.Now().Add(10 * time.Second))
	l.t.Cleanup(func() { _ = agent.Close() })
	return agent
}

func socket(t *testing.T) (*net.UDPConn, uint16) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { _ = c.Close() })
	return c, uint16(c.LocalAddr().(*net.UDPAddr).Port)
}

func overUDP(t *testing.T, host string, port uint16) policy.Rule {
	r := local(t, host, port)
	r.TCP, r.UDP = false, true
	return r
}

// BU-7: datagrams come from the peer that was permitted, and from nobody else.
func TestBU7OnlyThePeer(t *testing.T) {
	peer, port := socket(t)
	third, _ := socket(t)
	l := newLab(t, overUDP(t, "ok.test", port))
	agent := l.datagramsTo("ok.test", port)
	if _, err := agent.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, from, err := peer.ReadFromUDPAddrPort(b)
	if err != nil || string(b[:n]) != "ping" {
		t.Fatalf("%q, %v", b[:n], err)
	}
	for socket, text := range map[*net.UDPConn]string{third: "forged", peer: "pong"} {
		if _, err := socket.WriteToUDPAddrPort([]byte(text), from); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := agent.Read(b); err != nil || string(b[:n]) != "pong" {
		t.Errorf("%q, %v", b[:n], err)
	}
	_ = agent.Close()
	if r := l.last(); r.Verdict.Reason != flow.None || r.Up != 4 || r.Down != 4 || r.Address.Port() != port {
		t.Errorf("%+v", r)
	}
}

// What fails after success closes the flow (B44), and every address is judged as for TCP.
func TestUDPEnds(t *testing.T) {
	gone, port := socket(t)
	_ = gone.Close()
	public := overUDP(t, "ok.test", port)
	l := newLab(t, public)
	agent := l.datagramsTo("ok.test", port)
	_, _ = agent.Write([]byte("nobody listens"))
	if n, err := agent.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes of nobody", n)
	}
	l.last()
	public.Resolve = nil
	l.install(policy.Policy{Rules: []policy.Rule{public}, Ceiling: policy.Ceiling{NoFloor: true}})
	l.dest.Set(nil, map[string][]netip.Addr{"ok.test": {netip.MustParseAddr("10.0.0.1")}})
	l.datagramsTo("ok.test", port)
	if r := l.last(); r.Verdict.Reason != flow.ResolvedAddressDenied || r.Dropped != 1 {
		t.Errorf("%+v", r)
	}
}
