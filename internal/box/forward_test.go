package box

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/forwarding"
	"skep.dev/skep/internal/lifeline"
	"skep.dev/skep/internal/sys"
)

// inside serves in the cell's namespace: an echo.
func (c *cellNet) inside(network, at string) uint16 {
	c.t.Helper()
	var l net.Listener
	var err error
	c.do(func() { l, err = net.Listen(network, at) })
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// session is the owner's side of a forward.
type session struct {
	t       *testing.T
	channel *os.File
	last    uint32
}

// forward begins one, as skepd does.
func (l *lab) forward(port uint16) (*session, error) {
	l.t.Helper()
	return begun(l.t, port, func(theirs *os.File) error { return l.line.Ask(l.t.Context(), lifeline.Forward, theirs) })
}

func begun(t *testing.T, port uint16, give func(*os.File) error) (*session, error) {
	t.Helper()
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	t.Cleanup(func() { ours.Close() })
	if err := (forwarding.Opening{Port: port, Peer: "uid:7"}).Send(ours); err != nil {
		t.Fatal(err)
	}
	_ = ours.SetReadDeadline(deadline())
	return &session{t: t, channel: ours}, give(theirs)
}

// connect hands a connection of the host's loopback over, and gives its other end.
func (s *session) connect() net.Conn {
	s.t.Helper()
	ours, theirs := connected(s.t, "127.0.0.1:0")
	s.deliver(theirs)
	return ours
}

func (s *session) deliver(c net.Conn) {
	s.t.Helper()
	f, err := c.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	c.Close()
	s.last++
	if err := forwarding.Deliver(s.channel, s.last, f); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) event() forwarding.Event {
	s.t.Helper()
	e, err := forwarding.ReadEvent(s.channel)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// connected is a TCP connection in the outer namespace.
func connected(t *testing.T, at string) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = net.Dial("tcp", ln.Addr().String())
	if err == nil {
		server, err = ln.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = client.SetDeadline(deadline())
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// BI-1 of the native path: what the owner sends reaches the pinned port, on 127.0.0.1 or
// else on ::1, with what came together with the connect, and each delivery is recorded with
// its bytes and its end (B173, B176, B178).
func TestBI1Native(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Version: "v1"}}, nil)
	for network, at := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		port := l.inside(network, at)
		s, err := l.forward(port)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := connected(t, "127.0.0.1:0")
		if _, err := io.WriteString(ours, "early"); err != nil { // before anybody has it
			t.Fatal(err)
		}
		s.deliver(theirs)
		if e := s.event(); e.What != forwarding.Opened || e.ID != 1 {
			t.Fatalf("%+v", e)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(ours, got); err != nil || string(got) != "early" {
			t.Fatalf("%q, %v", got, err)
		}
		says(t, ours, "and more")
		_ = ours.(*net.TCPConn).CloseWrite() // half-close stays half-close
		if rest, err := io.ReadAll(ours); err != nil || len(rest) != 0 {
			t.Errorf("%q, %v", rest, err)
		}
		if e := s.event(); e.What != forwarding.Ended {
			t.Errorf("%+v", e)
		}
		dst := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
		r := l.daemon.find(t, "of the delivery", func(r *skepv1.FlowRecord) bool {
			return r.Kind == skepv1.FlowRecord_KIND_OUTCOME && r.Destination == dst
		})
		host, _, _ := net.SplitHostPort(at)
		if r.Direction != "in" || r.Peer != "uid:7" || r.Rule != "forward" || r.BytesUp != 13 || r.BytesDown != 13 || r.Decision != "allow" ||
			r.Address != net.JoinHostPort(host, strconv.Itoa(int(port))) || r.Generation != 3 || r.Wire != "native" {
			t.Errorf("%v", r)
		}
	}
	l.finish()
}

// BI-2 of the native path: a session has the one port that skepd has named, nothing but a
// connection of the host's loopback is taken, and what the box itself has on its loopback is
// never reached.
func TestBI2NativeAttacks(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{}}, nil)
	for _, port := range []uint16{dnsPort, udpPort, 65001} {
		if _, err := l.forward(port); !errors.Is(err, lifeline.ErrRefused) {
			t.Errorf("the boundary's own port %d: %v", port, err)
		}
	}
	// Of the host, which is the box's own.
	host, _ := connected(t, "127.0.0.1:0")
	port := uint16(host.RemoteAddr().(*net.TCPAddr).Port)
	ln, err := net.Listen("tcp", host.RemoteAddr().String())
	if err == nil {
		t.Cleanup(func() { ln.Close() })
	}
	s, err := l.forward(port)
	if err != nil {
		t.Fatal(err)
	}
	c := s.connect()
	if e := s.event(); e.What != forwarding.Refused || e.Reason != flow.IngressUnreachable {
		t.Errorf("a port of the box's own loopback: %+v", e)
	}
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
	asked := l.inward.Load()
	// What is no such connection.
	far, near := connected(t, public4+":0")
	s.deliver(near)
	if e := s.event(); e.What != forwarding.Refused || e.Reason != flow.PortNotPermitted {
		t.Errorf("a connection that is not of the loopback: %+v", e)
	}
	_, _ = io.ReadAll(far)
	a, b, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := forwarding.Deliver(s.channel, 9, b); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if e := s.event(); e.ID != 9 || e.What != forwarding.Refused {
		t.Errorf("a Unix socket: %+v", e)
	}
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := forwarding.Deliver(s.channel, 10, file); err != nil {
		t.Fatal(err)
	}
	if e := s.event(); e.ID != 10 || e.What != forwarding.Refused {
		t.Errorf("a file: %+v", e)
	}
	if l.inward.Load() != asked {
		t.Error("the warden was asked to connect")
	}
	// What is no message ends the session.
	if err := sys.SendFDs(s.channel, bytes.Repeat([]byte("x"), 40)); err != nil {
		t.Fatal(err)
	}
	if e := s.event(); e != (forwarding.Event{}) {
		t.Errorf("%+v", e)
	}
	l.finish()
}

// With its session a port ends, and what was open through it; another session, and a port
// that was never opened, have nothing of it. With the box all end (B162).
func TestForwardEndsWithItsSession(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{}}, nil)
	one, other := l.inside("tcp4", "127.0.0.1:0"), l.inside("tcp4", "127.0.0.1:0")
	a, err := l.forward(one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.forward(other)
	if err != nil {
		t.Fatal(err)
	}
	first, second := a.connect(), b.connect()
	says(t, first, "x")
	says(t, second, "x")
	a.channel.Close()
	if _, err := io.ReadAll(first); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a flow outlives its session: %v", err)
	}
	l.daemon.find(t, "of a flow that was ended", func(r *skepv1.FlowRecord) bool { return r.Reason == "revoked" && r.Direction == "in" })
	says(t, second, "y")
	l.finish()
	if _, err := io.ReadAll(second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a flow outlives its cell: %v", err)
	}
	if e := b.event(); e.What == forwarding.Ended {
		e = b.event()
	} else if e != (forwarding.Event{}) && e.What != forwarding.Opened {
		t.Errorf("%+v", e)
	}
	if _, err := l.line.Begin(t.Context(), lifeline.Forward); err == nil {
		t.Log("the lifeline is not seen to be gone yet")
	}
}

// What cannot be recorded is not delivered (B4), and there is room for so many deliveries
// and no more, of which the cell's own flows know nothing (B150).
func TestForwardIsRecordedAndBounded(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{}}, nil)
	s, err := l.forward(l.inside("tcp4", "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	l.daemon.mu.Lock()
	l.daemon.broken = true
	l.daemon.mu.Unlock()
	_ = s.connect()
	if e := s.event(); e.What != forwarding.Refused || e.Reason != flow.RecordUnavailable {
		t.Errorf("%+v", e)
	}
	if l.inward.Load() != 0 {
		t.Error("it was delivered all the same")
	}
	l.daemon.mu.Lock()
	l.daemon.broken = false
	l.daemon.mu.Unlock()
	for range boundary.OpenIngress {
		_ = s.connect()
		if e := s.event(); e.What != forwarding.Opened {
			t.Fatalf("%+v", e)
		}
	}
	_ = s.connect()
	if e := s.event(); e.What != forwarding.Refused || e.Reason != flow.Busy {
		t.Errorf("one too many: %+v", e)
	}
	l.finish()
}

// A port is open in as many sessions as there may be.
func TestForwardSessionsAreBounded(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{}}, nil)
	var last *session
	for range 32 {
		s, err := l.forward(8080)
		if err != nil {
			t.Fatal(err)
		}
		last = s
	}
	if _, err := l.forward(8080); !errors.Is(err, lifeline.ErrRefused) {
		t.Errorf("%v", err)
	}
	last.channel.Close()
	for end := time.Now().Add(10 * time.Second); ; {
		if _, err := l.forward(8080); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	l.finish()
}

// A box that is replaced sends its owner to the other one; what is open there lasts, and
// the box with it (L20a).
func TestForwardFollowsTheBox(t *testing.T) {
	a := &skepv1.Assignment{Cell: "cell", Policy: &skepv1.BoxPolicy{}}
	l := startLinked(t, a)
	port := l.inside("tcp4", "127.0.0.1:0")
	open := func() (*session, error) {
		return begun(t, port, func(theirs *os.File) error { return l.link.Forward(within(t, 10*time.Second), theirs) })
	}
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	kept := s.connect()
	says(t, kept, "before")
	if e := s.event(); e.What != forwarding.Opened {
		t.Errorf("%+v", e)
	}
	before := l.handOver(a)
	if e := s.event(); e.What != forwarding.Moved {
		t.Errorf("%+v", e)
	}
	_ = s.connect() // which the box before does not take
	if e := s.event(); e.What != forwarding.Moved || e.ID != 2 {
		t.Errorf("%+v", e)
	}
	next, err := open()
	if err != nil {
		t.Fatal(err)
	}
	says(t, next.connect(), "after")
	says(t, kept, "still")
	kept.Close()
	if e := s.event(); e.What != forwarding.Ended {
		t.Errorf("%+v", e)
	}
	before.ends(t)
	if n := l.end(); n != 2 {
		t.Errorf("%d flows are recorded", n)
	}
}
