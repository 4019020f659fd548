package idle

import (
	"sync"
	"sync/atomic"
)

// Tally is a WaitGroup that tells how many it waits for.
type Tally struct {
	wait sync.WaitGroup
	n    atomic.Int64
}

// Begin counts one more.
func (t *Tally) Begin() {
	t.n.Add(1)
	t.wait.Add(1)
}

// End counts one less.
func (t *Tally) End() {
	t.n.Add(-1)
	t.wait.Done()
}

// Count is how many there are.
func (t *Tally) Count() int { return int(t.n.Load()) }

// Wait returns when there is none.
func (t *Tally) Wait() { t.wait.Wait() }
