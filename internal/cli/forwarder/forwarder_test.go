package forwarder

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/forwarding"
	"skep.dev/skep/internal/sys"
)

// lab is a forwarder and the boxes that it is given channels to.
type lab struct {
	t     *testing.T
	at    string
	boxes chan *os.File
	told  chan Event
	over  chan struct{} // closed when the cell has ended
	ended chan error
	end   context.CancelFunc
}

func begin(t *testing.T, user uint32) *lab {
	t.Helper()
	l := &lab{t: t, boxes: make(chan *os.File, 4), told: make(chan Event, 64), over: make(chan struct{}), ended: make(chan error, 1)}
	listeners, err := Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	l.at = listeners[0].Addr().String()
	f := &Forwarder{Listeners: listeners, User: user, Tell: func(e Event) { l.told <- e }, Open: func(context.Context) (*os.File, error) {
		select {
		case <-l.over:
			return nil, ErrOver
		default:
		}
		ours, theirs, err := sys.SeqpacketPair()
		if err == nil {
			_ = theirs.SetReadDeadline(time.Now().Add(20 * time.Second))
			l.boxes <- theirs
		}
		return ours, err
	}}
	ctx, cancel := context.WithCancel(t.Context())
	l.end = cancel
	go func() { l.ended <- f.Run(ctx) }()
	return l
}

func (l *lab) dial() net.Conn {
	l.t.Helper()
	c, err := net.Dial("tcp", l.at)
	if err != nil {
		l.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	l.t.Cleanup(func() { c.Close() })
	return c
}

// next is what a box is given, as an echo once it says that it is open.
func (l *lab) next(box *os.File) (uint32, net.Conn) {
	l.t.Helper()
	id, f, err := forwarding.Next(box)
	if err != nil || f == nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	return id, c
}

func (l *lab) say(box *os.File, e forwarding.Event) {
	l.t.Helper()
	if err := e.Send(box); err != nil {
		l.t.Fatal(err)
	}
}

// What connects goes to the box; one that another has taken the place of gives back what it
// did not take, and keeps what it did; with the cell all ends.
func TestRun(t *testing.T) {
	l := begin(t, uint32(os.Getuid()))
	one := <-l.boxes
	kept := l.dial()
	id, c := l.next(one)
	l.say(one, forwarding.Event{What: forwarding.Opened, ID: id})
	go func(c net.Conn) { _, _ = io.Copy(c, c) }(c)
	if _, err := io.WriteString(kept, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(kept, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if e := <-l.told; e.What != forwarding.Opened || e.ID != id {
		t.Errorf("%+v", e)
	}
	late := l.dial()
	again, dup := l.next(one)
	dup.Close()
	l.say(one, forwarding.Event{What: forwarding.Moved})
	l.say(one, forwarding.Event{What: forwarding.Moved, ID: again})
	two := <-l.boxes
	id, c = l.next(two)
	if id != again {
		t.Errorf("connection %d, want %d", id, again)
	}
	l.say(two, forwarding.Event{What: forwarding.Opened, ID: id})
	_, _ = io.WriteString(c, "y")
	if got := make([]byte, 1); readFull(t, late, got) != "y" {
		t.Errorf("%q", got)
	}
	if _, err := io.WriteString(kept, "z"); err != nil {
		t.Fatal(err)
	}
	if got := make([]byte, 1); readFull(t, kept, got) != "z" {
		t.Errorf("%q", got)
	}
	close(l.over)
	two.Close()
	one.Close()
	if err := <-l.ended; !errors.Is(err, ErrOver) {
		t.Errorf("%v", err)
	}
	if c, err := net.Dial("tcp", l.at); err == nil {
		c.Close()
		t.Error("it listens after the cell's end")
	}
}

func readFull(t *testing.T, c net.Conn, into []byte) string {
	t.Helper()
	if _, err := io.ReadFull(c, into); err != nil {
		t.Fatal(err)
	}
	return string(into)
}

// A connection that the box refuses is reset; one while there is no box waits for the next.
func TestRefusedAndWaiting(t *testing.T) {
	l := begin(t, uint32(os.Getuid()))
	box := <-l.boxes
	c := l.dial()
	id, end := l.next(box)
	_ = end.(*net.TCPConn).SetLinger(0)
	end.Close()
	l.say(box, forwarding.Event{What: forwarding.Refused, ID: id, Reason: flow.IngressUnreachable})
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
	if e := <-l.told; e.What != forwarding.Refused || e.Reason != flow.IngressUnreachable {
		t.Errorf("%+v", e)
	}
	box.Close()
	waits := l.dial()
	box = <-l.boxes
	id, end = l.next(box)
	l.say(box, forwarding.Event{What: forwarding.Opened, ID: id})
	_, _ = io.WriteString(end, "x")
	if readFull(t, waits, make([]byte, 1)) != "x" {
		t.Error("lost")
	}
	l.end()
	if err := <-l.ended; err != nil {
		t.Error(err)
	}
	if id, f, err := forwarding.Next(box); err != nil || f != nil {
		t.Errorf("the box is not told of the end: %d, %v", id, err)
	}
}

// Another user of the host gets nothing: not one byte, and the box hears of no connection.
func TestAnotherUserIsRefused(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may")
	}
	l := begin(t, uint32(os.Getuid())+1) // the forward of somebody else
	box := <-l.boxes
	c, err := net.Dial("tcp", l.at)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = io.ReadAll(c)
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
	if e := <-l.told; e.Reason != flow.IdentityUnknown || e.User != uint32(os.Getuid()) {
		t.Errorf("%+v", e)
	}
	_ = box.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, f, err := forwarding.Next(box); err == nil {
		t.Errorf("the box has %v", f)
	}
}

// One port in both families, or none.
func TestListen(t *testing.T) {
	a, err := Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(a[0].Addr().(*net.TCPAddr).Port)
	for _, l := range a {
		at := l.Addr().(*net.TCPAddr)
		if !at.IP.IsLoopback() || uint16(at.Port) != port {
			t.Errorf("it listens at %s", at)
		}
		defer l.Close()
	}
	if _, err := Listen(port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v", err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			more, err := Listen(0)
			if err != nil {
				t.Error(err)
			}
			for _, l := range more {
				l.Close()
			}
		})
	}
	all.Wait()
}
