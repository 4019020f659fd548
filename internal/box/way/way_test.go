package way

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skep.dev/skep/internal/h2"
)

// conn is a connection, and its other end.
func conn(t *testing.T) (*h2.Conn, net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	go func() {
		buf := make([]byte, 1<<10)
		for {
			if _, err := b.Read(buf); err != nil {
				_ = b.Close()
				return
			}
		}
	}()
	c, err := h2.New(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, b
}

// A question that is under way keeps its connection; a new one has the next.
func TestExchangeWaitsForWhatIsUnderWay(t *testing.T) {
	first, _ := conn(t)
	w := New(first)
	on, done := w.Use()
	next, _ := conn(t)
	exchanged := make(chan struct{})
	go func() {
		w.Exchange(next)(context.Background())
		close(exchanged)
	}()
	for {
		c, also := w.Use()
		also()
		if c == next {
			break
		}
	}
	select {
	case <-exchanged:
		t.Fatal("the first is closed under a question")
	case <-time.After(20 * time.Millisecond):
	}
	if on != first {
		t.Error("another connection")
	}
	done()
	<-exchanged
	gone, cancel := context.WithCancel(context.Background())
	_, done = w.Use()
	cancel()
	last, _ := conn(t)
	w.Exchange(last)(gone) // whoever ends does not wait
	done()
	w.Close()
}

// However many use it while it is exchanged, none has a connection that is closed.
func TestNoneLosesItsConnection(t *testing.T) {
	first, _ := conn(t)
	w := New(first)
	var open sync.Map // connections that were not closed yet
	open.Store(first, true)
	var over atomic.Bool
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for !over.Load() {
				c, done := w.Use()
				if _, ok := open.Load(c); !ok {
					t.Error("closed while in use")
				}
				done()
			}
		})
	}
	before := first
	for range 200 {
		next, _ := conn(t)
		open.Store(next, true)
		w.Exchange(next)(context.Background())
		open.Delete(before)
		before = next
	}
	over.Store(true)
	users.Wait()
}
