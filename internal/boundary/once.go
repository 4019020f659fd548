package boundary

import "sync"

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

// back gives back a rule under which nothing has opened.
func (t *taken) back(rule string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rules, rule)
}
