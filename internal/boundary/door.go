package boundary

import (
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
)

// doorAgain is how soon a change that failed is tried again.
const doorAgain = time.Second

// Door is the early gate as a whole: it is shut in the kernel while the gate would let
// no new flow in, so that a connect fails before its handshake (B13, B18). What comes
// through meanwhile the gate refuses itself. A nil Door stays open.
type Door struct {
	set  func(shut bool) error // tells the kernel, and returns when it has done it
	full func() flow.Reason    // why no flow has room now, or None

	mu     sync.Mutex
	pause  flow.Reason // until then
	until  time.Time
	last   flow.Reason // why it was shut last
	is     bool        // in the kernel
	change bool        // one is under way
}

// NewDoor begins open; set is called by one goroutine at a time, full by any.
func NewDoor(set func(shut bool) error, full func() flow.Reason) *Door {
	return &Door{set: set, full: full}
}

// Turn looks again whether the door has to be shut. It does not wait for the kernel.
func (d *Door) Turn() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn()
}

// Pause shuts the door for a while.
func (d *Door) Pause(why flow.Reason, long time.Duration) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if until := time.Now().Add(long); until.After(d.until) {
		d.pause, d.until = why, until
		time.AfterFunc(long+time.Millisecond, d.Turn)
	}
	d.turn()
}

// Why is the reason for which the door was shut last: of a refusal that the kernel made
// for it.
func (d *Door) Why() flow.Reason {
	if d == nil {
		return flow.Busy
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == flow.None {
		return flow.Busy
	}
	return d.last
}

// turn is for holders of mu.
func (d *Door) turn() {
	if !d.change && d.shut() != d.is {
		d.change = true
		go d.follow()
	}
}

func (d *Door) shut() bool {
	why := d.full()
	if why == flow.None && time.Now().Before(d.until) {
		why = d.pause
	}
	if why != flow.None {
		d.last = why
	}
	return why != flow.None
}

// follow makes the kernel's door what it has to be, until it is.
func (d *Door) follow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		want := d.shut()
		if want == d.is {
			break
		}
		d.mu.Unlock()
		err := d.set(want)
		d.mu.Lock()
		if err != nil {
			time.AfterFunc(doorAgain, d.Turn)
			break
		}
		d.is = want
	}
	d.change = false
}
