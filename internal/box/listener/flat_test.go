package listener

import (
	"bufio"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Many short flows, refusals and broken heads leave no goroutine and no descriptor.
func TestNothingIsLeft(t *testing.T) {
	l := newLab(t, nil)
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
	settle := func(most int) (goroutines, descriptors int) {
		for late := time.Now().Add(10 * time.Second); ; {
			goroutines, descriptors = count()
			if l.open.Load() == 0 && goroutines <= most || time.Now().After(late) {
				return goroutines, descriptors
			}
			<-time.After(time.Millisecond)
		}
	}
	goroutines, descriptors := settle(40)
	for range 20 {
		turn()
	}
	if g, d := settle(goroutines + 4); g > goroutines+4 || d > descriptors+32 { // spare pipes of the relay are kept
		t.Errorf("%d goroutines after %d, %d descriptors after %d", g, goroutines, d, descriptors)
	}
}
