package daemon

import (
	"net/http"
	"sync"
	"time"
)

// IdleTime is how long an automatic daemon stays without a cell and a call.
const IdleTime = 10 * time.Minute

// idle ends an automatic daemon that nobody needs.
type idle struct {
	clock Clock
	auto  bool
	busy  func() bool
	end   func()

	mu      sync.Mutex
	calls   int
	closed  bool
	disarm  func()
	touched uint64 // by each use: a timer that was set before it is void
}

func newIdle(clock Clock, auto bool, busy func() bool, end func()) *idle {
	i := &idle{clock: clock, auto: auto, busy: busy, end: end, disarm: func() {}}
	i.touch(0)
	return i
}

// touch notes a use, and that calls have begun (1) or ended (-1).
func (i *idle) touch(calls int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls += calls
	i.touched++
	i.arm()
}

func (i *idle) arm() {
	i.disarm()
	i.disarm = func() {}
	if !i.auto || i.closed || i.calls > 0 {
		return
	}
	at := i.touched
	i.disarm = i.clock.AfterFunc(IdleTime, func() {
		busy := i.busy()
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.closed || i.calls > 0 || i.touched != at {
			return
		}
		if busy {
			i.arm()
			return
		}
		i.end()
	})
}

// note counts the calls that pass through.
func (i *idle) note(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.touch(1)
		defer i.touch(-1)
		h.ServeHTTP(w, r)
	})
}

func (i *idle) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.disarm()
}
