package boundary

import (
	"sync"

	"skep.dev/skep/internal/flow"
)

// taken are the answers for one flow that a flow has taken (B143). skepd hears of it by
// the flow's intent, and says so with the next policy; until then two flows must not have
// the same one.
type taken struct {
	mu    sync.Mutex
	rules map[string]bool
}

// first reports whether nobody has taken a rule before, and takes it.
func (t *taken) first(rule string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rules[rule] {
		return false
	}
	if t.rules == nil {
		t.rules = map[string]bool{}
	}
	t.rules[rule] = true
	return true
}

// back gives back an answer under which nothing has opened.
func (g *Gate) back(q flow.Request, rule string) {
	g.taken.back(rule)
	if g.Back != nil {
		g.Back(q, rule)
	}
}

func (t *taken) back(rule string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rules, rule)
}
