package boundary

import (
	"context"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/route"
)

// HeldFlows is how many flows of a cell may wait for a person at once (B140).
const HeldFlows = 32

// Waits reports whether a verdict keeps its flow waiting for a person.
func Waits(v flow.Verdict) bool { return v.Decision == flow.Ask && v.Hold > 0 }

// holding are the flows that wait here. Connects of a native cell wait in its kernel.
type holding struct {
	mu      sync.Mutex
	n       int
	changed chan struct{} // closed when the policy is another
}

func (h *holding) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == HeldFlows {
		return false
	}
	h.n++
	return true
}

func (h *holding) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n--
}

// next is closed with the next policy.
func (h *holding) next() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

func (h *holding) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// judge decides q. An answer for one flow is taken by the first that it allows (B143).
func (g *Gate) judge(q flow.Request) (v flow.Verdict, p held, once bool) {
	v, p = g.decide(q)
	if !v.Allowed() || !p.value.IsOnce(v.Rule) {
		return v, p, false
	}
	if g.taken.first(v.Rule) {
		return v, p, true
	}
	return policy.Decide(q, p.value.Without(v.Rule)), p, false
}

// hold is judge for a flow that may wait for its answer: until there is one, or its time
// is over, or the cell's. The answer is a policy (B144).
func (g *Gate) hold(ctx context.Context, q flow.Request) (v flow.Verdict, p held, once bool) {
	v, p, once = g.judge(q)
	if !Waits(v) || !g.holding.enter() {
		return v, p, once
	}
	defer g.holding.leave()
	g.Refusals.Add(Record{Kind: Held, Request: q, Policy: p.version(), Verdict: v})
	late := time.NewTimer(v.Hold)
	defer late.Stop()
	for over := false; ; {
		another := g.holding.next()
		v, p, once = g.judge(q)
		if over || !Waits(v) {
			return v, p, once
		}
		select {
		case <-another:
		case <-late.C:
			over = true
		case <-ctx.Done():
			return flow.Verdict{Reason: flow.Revoked, Rule: v.Rule, Line: v.Line}, p, false
		}
	}
}

// Hold judges a connect that the kernel keeps waiting; with Waits it may go on to. first
// is its first attempt, which is recorded, and asks (B140).
func (g *Gate) Hold(e route.Refusal, host string, first bool) flow.Verdict {
	q := g.early(e, host)
	v, p := g.decide(q)
	if first && Waits(v) {
		g.Refusals.Add(Record{Kind: Held, Request: q, Policy: p.version(), Verdict: v})
	}
	return v
}
