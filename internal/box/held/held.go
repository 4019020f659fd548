// Package held is where connects of a native cell wait for a person (boundary.md, B13 and
// B140). The cell's kernel does not answer them, and tells of each attempt; here is who
// waits since when.
//
// Its laws:
//   - A connect waits as long as the rule says that asks for it, counted from its first
//     attempt, and then is refused by the kernel at its next one.
//   - What policy does not keep waiting is never kept waiting: the kernel's ranges may be
//     wider than policy, and the gate judges each connect.
//   - It allows nothing. An answer is a policy, and the kernel follows that.
package held

import (
	"net/netip"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
)

// maxKept is more than the kernel lets wait at once, because it forgets whoever has given
// up, and we do not see that.
const maxKept = 1024

// Flow is one connect: the cell's own port, and where it goes.
type Flow struct {
	From uint16
	To   netip.AddrPort
}

// Flows are the connects of one cell that wait.
type Flows struct {
	// Judge asks the gate; first is the first attempt of a connect.
	Judge func(e route.Refusal, first bool) flow.Verdict
	// Refuse has the kernel refuse a connect from now on. It does not wait.
	Refuse func(Flow)

	mu  sync.Mutex
	all map[Flow]struct{}
}

// Seen takes one attempt that the kernel did not answer.
func (f *Flows) Seen(e route.Refusal) {
	one := Flow{e.From, e.Dst}
	if f.has(one) {
		return
	}
	switch v := f.Judge(e, true); {
	case v.Allowed(): // since then: its next attempt passes
	case !boundary.Waits(v) || !f.keep(one):
		f.Refuse(one)
	default:
		time.AfterFunc(v.Hold, func() { f.end(one, e) })
	}
}

func (f *Flows) has(one Flow) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, is := f.all[one]
	return is
}

func (f *Flows) keep(one Flow) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) == maxKept {
		return false
	}
	if f.all == nil {
		f.all = map[Flow]struct{}{}
	}
	f.all[one] = struct{}{}
	return true
}

// end is when the time of a connect is over.
func (f *Flows) end(one Flow, e route.Refusal) {
	f.mu.Lock()
	delete(f.all, one)
	f.mu.Unlock()
	if !f.Judge(e, false).Allowed() {
		f.Refuse(one)
	}
}
