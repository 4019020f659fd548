// Package idle ends an automatic daemon that nobody needs.
//
// Its law: while a call or a cell is there, nothing ends.
package idle

import (
	"net/http"
	"sync"
	"time"
)

// After is how long an automatic daemon stays without a cell and a call.
const After = 10 * time.Minute

// Clock wakes the watch; tests turn it by hand.
type Clock interface {
	AfterFunc(d time.Duration, f func()) (stop func())
}

// Watch counts calls and waits for their absence.
type Watch struct {
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

// New begins to watch. busy tells whether a cell runs; end is called once there was
// neither a call nor a cell for the time After, if auto is set.
func New(clock Clock, auto bool, busy func() bool, end func()) *Watch {
	i := &Watch{clock: clock, auto: auto, busy: busy, end: end, disarm: func() {}}
	i.Touch(0)
	return i
}

// Touch notes a use, and that calls have begun (1) or ended (-1).
func (i *Watch) Touch(calls int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls += calls
	i.touched++
	i.arm()
}

func (i *Watch) arm() {
	i.disarm()
	i.disarm = func() {}
	if !i.auto || i.closed || i.calls > 0 {
		return
	}
	at := i.touched
	i.disarm = i.clock.AfterFunc(After, func() {
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

// Note counts the calls that pass through.
func (i *Watch) Note(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.Touch(1)
		defer i.Touch(-1)
		h.ServeHTTP(w, r)
	})
}

// Close ends the watching. A nil Watch is closed.
func (i *Watch) Close() {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.disarm()
}
