package listener

import (
	"bufio"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
)

// Many short flows, refusals and broken heads beside long ones leave no goroutine and no
// descriptor. `make soak` has 100,000 beside 900.
func TestNothingIsLeft(t *testing.T) {
	turns, long := 20, 20
	if os.Getenv("SKEP_SOAK") != "" {
		turns, long = 1600, 900
	}
	l := newLab(t, func(l *Listener) { l.Gate.Flows = boundary.OpenFlows })
	turn := func() {
		var all sync.WaitGroup
		for i := range 64 {
			c := l.dial()
			all.Go(func() {
				defer func() { _ = c.Close() }()
				switch i % 4 {
				case 0:
					_, _ = io.WriteString(c, "CONNECT ok.test")
				case 1:
					_, _ = io.WriteString(c, connect("no.test", 443))
					_, _ = io.ReadAll(c)
				case 2:
					_, _ = io.WriteString(c, connect("ok.test", l.port)) // and is gone before the answer
				default:
					_, _ = io.WriteString(c, connect("ok.test", l.port)+"x")
					r := bufio.NewReader(c)
					if head := answer(t, r); !strings.Contains(head, "200") {
						t.Errorf("%q", head)
					}
					_ = c.CloseWrite()
					_, _ = io.ReadAll(r)
				}
			})
		}
		all.Wait()
	}
	count := func() (goroutines, descriptors int) {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return runtime.NumGoroutine(), len(open)
	}
	turn() // what is made once is there now
	settle := func(most, open int) (goroutines, descriptors int) {
		for late := time.Now().Add(10 * time.Second); ; {
			goroutines, descriptors = count()
			if l.open.Load() == 0 && goroutines <= most && descriptors <= open || time.Now().After(late) {
				return goroutines, descriptors
			}
			<-time.After(time.Millisecond)
		}
	}
	goroutines, descriptors := settle(40, 80)
	var kept []net.Conn
	for range long {
		c := l.dial()
		_ = c.SetDeadline(time.Time{})
		_, _ = io.WriteString(c, connect("ok.test", l.port))
		if head := answer(t, bufio.NewReader(c)); !strings.Contains(head, "200") {
			t.Fatalf("%q", head)
		}
		kept = append(kept, c)
	}
	for range turns {
		turn()
	}
	for _, c := range kept {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("a long flow: %v", err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("a long flow: %v", err)
		}
		_ = c.Close()
	}
	if g, d := settle(goroutines+4, descriptors+32); g > goroutines+4 || d > descriptors+32 { // spare pipes of the relay are kept
		t.Errorf("%d goroutines after %d, %d descriptors after %d", g, goroutines, d, descriptors)
	}
}
