package boundary

import (
	"context"
	"net/netip"
	"sync"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// living are the open flows and pending dials of a gate. Each is judged again when the
// policy has changed (B161).
type living struct {
	mu  sync.Mutex
	all map[*alive]struct{}
}

// alive is one of them.
type alive struct {
	request flow.Request
	rule    string     // that allowed it
	address netip.Addr // that was dialed; invalid before
	end     context.CancelFunc
}

// begin has q judged again with every policy from now on. decided is the policy that
// allowed it: one that came meanwhile is asked at once.
func (g *Gate) begin(ctx context.Context, q flow.Request, rule string, decided held) (context.Context, *alive) {
	ctx, end := context.WithCancel(ctx)
	a := &alive{request: q, rule: rule, end: end}
	g.living.mu.Lock()
	defer g.living.mu.Unlock()
	if g.living.all == nil {
		g.living.all = map[*alive]struct{}{}
	}
	g.living.all[a] = struct{}{}
	if now := g.policy.Load(); now != decided.value {
		a.judge(now)
	}
	return ctx, a
}

// dialed adds to what is judged the address that was reached under an older policy.
func (g *Gate) dialed(a *alive, to netip.AddrPort, decided held) {
	g.living.mu.Lock()
	defer g.living.mu.Unlock()
	a.address = to.Addr()
	if now := g.policy.Load(); now != decided.value {
		a.judge(now)
	}
}

func (g *Gate) finish(a *alive) {
	g.living.mu.Lock()
	defer g.living.mu.Unlock()
	delete(g.living.all, a)
	a.end()
}

// judgeAgain ends what the policy of now does not allow, and leaves the others alone.
func (g *Gate) judgeAgain() {
	g.living.mu.Lock()
	defer g.living.mu.Unlock()
	now := g.policy.Load()
	for a := range g.living.all {
		a.judge(now)
	}
}

// judge is for holders of the lock.
func (a *alive) judge(now *policy.Policy) {
	switch {
	case !policy.Stands(a.request, *now, a.rule):
		a.end()
	case a.request.Name != "" && a.address.IsValid() && policy.Dispatch(a.request) == policy.RowEgress && !policy.Keep(a.request, *now, a.address):
		a.end()
	}
}
