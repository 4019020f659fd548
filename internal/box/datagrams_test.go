package box

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/name"
)

// udpEcho returns each datagram with its own address before it.
func udpEcho(t *testing.T, at string) (port uint16, got func() int) {
	t.Helper()
	world(t)
	c, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var mu sync.Mutex
	var n int
	where := c.LocalAddr().String()
	go func() {
		buf := make([]byte, 65536)
		for {
			k, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			mu.Lock()
			n++
			mu.Unlock()
			_, _ = c.WriteTo(append([]byte(where+" "), buf[:k]...), from)
		}
	}()
	return netip.MustParseAddrPort(where).Port(), func() int { mu.Lock(); defer mu.Unlock(); return n }
}

func datagramRule(ip string, ports ...uint16) *skepv1.BoxRule {
	r := nameRule("", "", ports...)
	r.Id, r.Ip, r.Tcp, r.Udp = "udp-"+ip, ip, false, true
	return r
}

// packetSocket is a socket of the cell that is connected to nothing.
func (c *cellNet) packetSocket(network, at string) (out *net.UDPConn) {
	c.t.Helper()
	c.do(func() {
		p, err := net.ListenPacket(network, at)
		if err != nil {
			c.t.Errorf("a socket of the cell: %v", err)
			return
		}
		out = p.(*net.UDPConn)
	})
	c.t.Cleanup(func() { _ = out.Close() })
	return out
}

// ask sends one datagram and returns what comes back, and from where.
func ask(t *testing.T, c *net.UDPConn, to netip.AddrPort, text string, patience time.Duration) (string, netip.AddrPort, error) {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort([]byte(text), to); err != nil {
		return "", netip.AddrPort{}, err
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 65536)
	n, from, err := c.ReadFromUDPAddrPort(buf)
	return string(buf[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), err
}

const soon, never = 10 * time.Second, 200 * time.Millisecond

// BG-8: an allowed datagram's answer comes from the address that it was written to, in
// both families, by name and by literal; one socket has each answer from its own.
func TestBG8Datagrams(t *testing.T) {
	port, _ := udpEcho(t, public4+":0")
	port6, _ := udpEcho(t, "["+public6+"]:0")
	name4 := nameRule("ok.test", public4, port)
	name4.Tcp, name4.Udp = false, true
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{name4, datagramRule(public4, port), datagramRule(public6, port6)}}}, nil)
	ok := netip.AddrPortFrom(l.resolve("ok.test", false), port)
	okBy6 := netip.AddrPortFrom(l.resolve("ok.test", true), port)
	literal, literal6 := netip.MustParseAddrPort(fmt.Sprintf("%s:%d", public4, port)), netip.MustParseAddrPort(fmt.Sprintf("[%s]:%d", public6, port6))
	four, six := l.packetSocket("udp4", ":0"), l.packetSocket("udp6", "[::]:0")
	for range 3 {
		for _, try := range []struct {
			c      *net.UDPConn
			to, at netip.AddrPort
		}{{four, ok, literal}, {four, literal, literal}, {six, okBy6, literal}, {six, literal6, literal6}} {
			text, from, err := ask(t, try.c, try.to, "hello", soon)
			if err != nil || from != try.to || text != try.at.String()+" hello" {
				t.Errorf("%s answers %q from %s, %v", try.to, text, from, err)
			}
		}
	}
	if n := l.asked.Load(); n != 1+4 { // the box's first question is whether it is answered
		t.Errorf("conntrack was asked %d times for 4 flows", n)
	}
	l.finish()
	intents := map[string]int{}
	for _, r := range l.daemon.all() {
		if r.Kind == skepv1.FlowRecord_KIND_INTENT {
			intents[r.Transport+" "+r.Destination]++
		}
		if r.Kind == skepv1.FlowRecord_KIND_OUTCOME && (r.BytesUp != 15 || r.BytesDown <= 15) {
			t.Errorf("%v", r)
		}
	}
	if len(intents) != 3 || intents[fmt.Sprintf("udp ok.test:%d", port)] != 2 || intents["udp "+literal.String()] != 1 {
		t.Errorf("%v", intents)
	}
}

// BG-8, BU-3, BU-4: what is not allowed fails at the send, is recorded, and opens nothing,
// from a socket whose other datagrams are let through, too.
func TestBU3BU4DatagramsAreRefused(t *testing.T) {
	port, got := udpEcho(t, public4+":0")
	other, others := udpEcho(t, public4+":0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{
		datagramRule(public4, port), nameRule("tcp.test", public4, other),
	}}}, nil)
	c := l.packetSocket("udp4", ":0")
	allowed, tcpOnly := netip.MustParseAddrPort(fmt.Sprintf("%s:%d", public4, port)), netip.AddrPortFrom(l.resolve("tcp.test", false), other)
	for range 2 {
		if _, _, err := ask(t, c, allowed, "hello", soon); err != nil {
			t.Error(err)
		}
		for _, denied := range []netip.AddrPort{tcpOnly, netip.MustParseAddrPort("9.9.9.9:443"), netip.MustParseAddrPort("100.64.9.9:443")} {
			if _, _, err := ask(t, c, denied, "hello", never); !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("to %s: %v", denied, err)
			}
		}
	}
	l.finish()
	reasons := map[string]string{}
	for _, r := range l.daemon.all() {
		if r.Kind == skepv1.FlowRecord_KIND_DENIED {
			reasons[r.Transport+" "+r.Destination] = r.Reason
		}
	}
	if reasons[fmt.Sprintf("udp tcp.test:%d", other)] != "transport-not-allowed" || reasons["udp 9.9.9.9:443"] != "ip-not-on-allowlist" || len(reasons) != 3 || got() != 2 || others() != 0 {
		t.Errorf("%v, %d and %d datagrams arrived", reasons, got(), others())
	}
}

// B16: what is aimed at the box's own socket goes nowhere, also from a source that has a
// flow, or had one whose port it uses again; the flow's peer is the only one that is reached.
func TestDatagramsAimedAtTheBox(t *testing.T) {
	port, got := udpEcho(t, public4+":0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{datagramRule(public4, port)}}}, nil)
	allowed, box := netip.MustParseAddrPort(fmt.Sprintf("%s:%d", public4, port)), netip.MustParseAddrPort("127.0.0.1:65002")
	direct := l.packetSocket("udp4", ":0")
	for _, at := range []string{":0", "127.0.0.1:0", name.Cell4().String() + ":0"} {
		c := l.packetSocket("udp4", at)
		if text, from, err := ask(t, c, box, "past", never); err == nil {
			t.Errorf("from %s the box's socket answers %q from %s", at, text, from)
		}
		if _, from, err := ask(t, c, allowed, "hello", soon); err != nil || from != allowed {
			t.Errorf("from %s: %s, %v", at, from, err)
		}
	}
	if text, _, err := ask(t, direct, box, "past", never); err == nil {
		t.Errorf("%q", text)
	}
	l.finish()
	aimed := 0
	for _, r := range l.daemon.all() {
		if r.Reason == "no-original-destination" && r.Transport == "udp" {
			aimed++
		}
	}
	if aimed != 4 || got() != 3 {
		t.Errorf("%d of 4 datagrams to the box's socket are recorded, %d of 3 arrived: %v", aimed, got(), l.daemon.all())
	}
}

// A source port that another socket uses again is another flow, with answers of its own;
// no answer of the first one's peer comes as from the second's.
func TestSourcePortIsUsedAgain(t *testing.T) {
	one, _ := udpEcho(t, public4+":0")
	two, _ := udpEcho(t, public4+":0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{datagramRule(public4, one, two)}}}, nil)
	at := ":0"
	for range 4 {
		for _, port := range []uint16{one, two} {
			to := netip.MustParseAddrPort(fmt.Sprintf("%s:%d", public4, port))
			c := l.packetSocket("udp4", at)
			at = fmt.Sprintf(":%d", c.LocalAddr().(*net.UDPAddr).Port)
			if text, from, err := ask(t, c, to, "hello", soon); err != nil || from != to || text != to.String()+" hello" {
				t.Errorf("%s answers %q from %s, %v", to, text, from, err)
			}
			_ = c.Close()
		}
	}
	l.finish()
}
