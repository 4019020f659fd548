package box

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// The box is replaced between a datagram and its answer: the one before answers what it
// had begun, as from where it was sent to, and the other has what comes after it.
func TestDatagramsUnderAnotherBox(t *testing.T) {
	world(t)
	server, err := net.ListenPacket("udp", public4+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	_ = server.SetDeadline(deadline())
	to := netip.MustParseAddrPort(server.LocalAddr().String())
	a := &skepv1.Assignment{Cell: "cell", Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{datagramRule(public4, to.Port())}}, Limits: &skepv1.BoxLimits{IdleTcpSeconds: 1}}
	l := startLinked(t, a)
	c := l.packetSocket("udp4", ":0")
	send := func(text string) (peer net.Addr) {
		t.Helper()
		buf := make([]byte, 100)
		// One that comes while the flow before it is being forgotten is lost, as datagrams may be.
		for late := deadline(); time.Now().Before(late); {
			if _, err := c.WriteToUDPAddrPort([]byte(text), to); err != nil {
				t.Fatal(err)
			}
			_ = server.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			n, peer, err := server.ReadFrom(buf)
			if err == nil && string(buf[:n]) == text {
				return peer
			}
		}
		t.Fatalf("%q did not arrive", text)
		return nil
	}
	answer := func(peer net.Addr, text string) {
		t.Helper()
		if _, err := server.WriteTo([]byte(text), peer); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(deadline())
		buf := make([]byte, 100)
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil || string(buf[:n]) != text || netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) != to {
			t.Fatalf("%q instead of %q from %s, %v", buf[:n], text, from, err)
		}
	}
	for i := range 3 {
		peer := send("before")
		before := l.handOver(a)
		next := send("after")
		answer(peer, "late")
		answer(next, "soon")
		if peer.String() == next.String() {
			t.Errorf("box %d has the socket of the one before", i)
		}
		before.ends(t)
	}
	if n := l.end(); n < 4 || n > 7 { // the last one's flow may be idle for a second before the next datagram
		t.Errorf("%d flows are recorded", n)
	}
}

// A rule for datagrams that is taken away takes its flow along, and the next datagram
// fails; one that comes lets them pass.
func TestSwapOfADatagramRule(t *testing.T) {
	port, got := udpEcho(t, public4+":0")
	with := &skepv1.BoxPolicy{Version: "1", Rules: []*skepv1.BoxRule{datagramRule(public4, port)}}
	without := &skepv1.BoxPolicy{Version: "2"}
	l := startLinked(t, &skepv1.Assignment{Cell: "cell", Policy: with})
	c, to := l.packetSocket("udp4", ":0"), netip.MustParseAddrPort(fmt.Sprintf("%s:%d", public4, port))
	for range 3 {
		if _, _, err := ask(t, c, to, "hello", soon); err != nil {
			t.Fatal(err)
		}
		l.link.Swap(without)
		for end := time.Now().Add(soon); ; {
			_, _, err := ask(t, c, to, "hello", 20*time.Millisecond)
			if errors.Is(err, syscall.EPERM) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("datagrams without a rule: %v", err)
			}
		}
		before := got()
		for range 20 {
			if _, _, err := ask(t, c, to, "hello", 20*time.Millisecond); !errors.Is(err, syscall.EPERM) {
				t.Errorf("a datagram without a rule: %v", err)
			}
		}
		if got() != before {
			t.Error("a datagram without a rule arrived")
		}
		l.link.Swap(with)
		for end := time.Now().Add(soon); ; {
			if _, _, err := ask(t, c, to, "hello", 100*time.Millisecond); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the rule is there again, and nothing passes")
			}
		}
	}
	l.end()
}
