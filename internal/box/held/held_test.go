package held

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
)

// judge is a gate that answers as it is told, and what the kernel is told.
type judge struct {
	mu      sync.Mutex
	verdict flow.Verdict
	firsts  int
	refused chan Flow
}

func (j *judge) say(v flow.Verdict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.verdict = v
}

func flows() (*Flows, *judge) {
	j := &judge{refused: make(chan Flow, 2*maxKept)}
	return &Flows{
		Judge: func(_ route.Refusal, first bool) flow.Verdict {
			j.mu.Lock()
			defer j.mu.Unlock()
			if first {
				j.firsts++
			}
			return j.verdict
		},
		Refuse: func(f Flow) { j.refused <- f },
	}, j
}

func seen(port uint16) route.Refusal {
	return route.Refusal{Transport: flow.TCP, Dst: netip.MustParseAddrPort("100.64.0.1:443"), From: port, Held: true}
}

func ask(hold time.Duration) flow.Verdict {
	return flow.Verdict{Decision: flow.Ask, Reason: flow.ApprovalNeeded, Hold: hold}
}

// B140: a connect is asked for once, however often it tries, waits as long as its rule says
// and not longer, and then is the kernel's to refuse.
func TestWaitsAndIsRefused(t *testing.T) {
	f, j := flows()
	j.say(ask(50 * time.Millisecond))
	begin := time.Now()
	for range 5 {
		f.Seen(seen(1))
	}
	if one := <-j.refused; one.From != 1 || time.Since(begin) < 50*time.Millisecond {
		t.Errorf("%+v after %s", one, time.Since(begin))
	}
	if j.firsts != 1 {
		t.Errorf("asked %d times", j.firsts)
	}
}

// What was allowed meanwhile is left alone; what was denied meanwhile, and what no rule
// holds although the kernel does, is refused, at once.
func TestAnswerDecides(t *testing.T) {
	f, j := flows()
	j.say(ask(20 * time.Millisecond))
	f.Seen(seen(1))
	j.say(flow.Verdict{Decision: flow.Allow})
	f.Seen(seen(2))
	for f.has(Flow{1, seen(1).Dst}) {
		<-time.After(time.Millisecond)
	}
	j.say(flow.Verdict{Reason: flow.ApprovalDenied})
	f.Seen(seen(3))
	j.say(ask(0))
	f.Seen(seen(4))
	for _, port := range []uint16{3, 4} {
		if one := <-j.refused; one.From != port {
			t.Errorf("%+v", one)
		}
	}
	if len(j.refused) != 0 || len(f.all) != 0 {
		t.Errorf("%d more are refused, %d kept", len(j.refused), len(f.all))
	}
}

// An agent that gives up and begins again fills nothing without end.
func TestKeptIsBounded(t *testing.T) {
	f, j := flows()
	j.say(ask(time.Hour))
	for i := range 2 * maxKept {
		f.Seen(seen(uint16(i)))
	}
	if len(f.all) != maxKept || len(j.refused) != maxKept {
		t.Errorf("%d are kept, %d refused", len(f.all), len(j.refused))
	}
}
