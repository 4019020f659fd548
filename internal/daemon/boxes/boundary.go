package boxes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"skep.dev/skep/internal/lifeline"
)

// Boundary is the way out of one cell: the box that serves it and, after it was replaced,
// those before it that still carry flows (L20a). Its zero value has none.
type Boundary struct {
	swap sync.Mutex // held while one box takes the place of another, and while all end

	mu      sync.Mutex
	now     *Box
	before  []*Box
	lent    map[*Box]int64 // of their leases, what they have carried, as they told last
	leased  map[*Box]int64 // all of their leases
	carried int64          // by boxes that have ended in order
	ended   bool

	over   <-chan struct{} // the end of the cell
	died   func(finished bool)
	unused func(carried, back int64)
}

// Begin makes b the cell's first box.
func (a *Boundary) Begin(b *Box) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now, a.lent, a.leased = b, map[*Box]int64{}, map[*Box]int64{}
}

// Now is the box that serves, nil before there is one.
func (a *Boundary) Now() *Box {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

// All are the boxes that there are, the one that serves last.
func (a *Boundary) All() []*Box {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now == nil {
		return nil
	}
	return append(slices.Clone(a.before), a.now)
}

// Attend has died called when a box is gone before over is closed, other than one that
// was replaced and has ended its last flow. finished says that it had nothing left to
// write. Of such a one unused hears how many bytes all have carried by then, and how many
// of its leases it leaves.
func (a *Boundary) Attend(over <-chan struct{}, died func(finished bool), unused func(carried, back int64)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over, a.died, a.unused = over, died, unused
	for _, b := range append(slices.Clone(a.before), a.now) {
		a.watch(b)
	}
}

// watch is for mu held.
func (a *Boundary) watch(b *Box) {
	go func() {
		select {
		case <-a.over:
			return
		case <-b.Gone():
		case <-b.Process.Done():
		}
		if finished := b.Link.Finished(); !finished || !a.forget(b) {
			a.died(finished)
		}
	}()
}

// Died tells whether a box is gone that had something left to write, by the kernel's word.
func (a *Boundary) Died() bool {
	return slices.ContainsFunc(a.All(), func(b *Box) bool { return b.Link.HungUp() && !b.Link.Finished() })
}

// forget takes a box out that another one has replaced and that has ended in order.
func (a *Boundary) forget(b *Box) bool {
	a.mu.Lock()
	at := slices.Index(a.before, b)
	if at < 0 {
		a.mu.Unlock()
		return false
	}
	a.before = slices.Delete(a.before, at, at+1)
	n, _ := b.Link.Spent()
	back := a.leased[b] - n
	delete(a.lent, b)
	delete(a.leased, b)
	a.carried += n
	sum := a.sum()
	a.mu.Unlock()
	b.Kill()
	if back > 0 {
		a.unused(sum, back)
	}
	return true
}

// While ends with the cell, which must be attended: one that ends waits for no other box.
func (a *Boundary) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-a.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Carried takes how many bytes of its leases a box has carried so far, and tells how many
// all of the cell have.
func (a *Boundary) Carried(b *Box, n int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b == a.now || slices.Contains(a.before, b) {
		a.lent[b] = n
	}
	return a.sum()
}

// sum is for mu held.
func (a *Boundary) sum() int64 {
	sum := a.carried
	for _, n := range a.lent {
		sum += n
	}
	return sum
}

// Leased takes that a box was leased n bytes more.
func (a *Boundary) Leased(b *Box, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b == a.now || slices.Contains(a.before, b) {
		a.leased[b] += n
	}
}

// Spent is how many bytes of their leases all boxes have carried, if each told at its end.
func (a *Boundary) Spent() (sum int64, told bool) {
	a.mu.Lock()
	sum = a.carried
	a.mu.Unlock()
	all := a.All()
	for _, b := range all {
		n, ok := b.Link.Spent()
		if !ok {
			return 0, false
		}
		sum += n
	}
	return sum, len(all) > 0
}

// Returns is how long a box that did not get a successor may take to serve again.
const returns = 5 * time.Second

// ErrLost says that after a box did not get ready the one before does not serve either.
var ErrLost = errors.New("neither box serves the cell")

// Replace has next, which knows its cell, take the place of the box that serves. While it
// does nobody's connect fails: what comes waits. The box before ends by itself when its
// last flow is over. After an error next is dead, and all is as before, but after ErrLost.
func (a *Boundary) Replace(ctx context.Context, next *Box) error {
	a.swap.Lock()
	defer a.swap.Unlock()
	a.mu.Lock()
	old, over := a.now, a.ended || a.over == nil
	a.mu.Unlock()
	if over {
		next.Kill()
		return errors.New("replace a box: the cell does not run")
	}
	// Before the old one stops: what comes meanwhile waits for the new one's start.
	select {
	case <-next.Link.Watching():
	case <-next.Gone():
		next.Kill()
		return errors.New("replace a box: the program that is to be one has ended")
	case <-ctx.Done():
		next.Kill()
		return fmt.Errorf("replace a box: wait for the start of another: %w", ctx.Err())
	}
	err := old.Link.HandOver(ctx, next.Warden)
	if err == nil {
		err = next.Link.Ready(ctx)
	}
	if err != nil {
		next.Kill()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), returns)
		defer cancel()
		// One that refused has gone on by itself, and refuses this, too.
		if kept := old.Link.Keep(late); kept != nil && !errors.Is(kept, lifeline.ErrRefused) {
			err = errors.Join(err, ErrLost, kept)
		}
		return fmt.Errorf("replace a box: %w", err)
	}
	next.Release()
	a.mu.Lock()
	a.before, a.now = append(a.before, old), next
	a.watch(next)
	a.mu.Unlock()
	_ = old.Link.Part(ctx) // one that does not hear it serves nobody, and is seen when it dies
	return nil
}

// End lets all boxes write what is left. Afterwards none is replaced.
func (a *Boundary) End(ctx context.Context) error {
	a.swap.Lock()
	defer a.swap.Unlock()
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	all := a.All()
	errs := make([]error, len(all))
	var ends sync.WaitGroup
	for i, b := range all {
		ends.Go(func() { errs[i] = b.Link.End(ctx) })
	}
	ends.Wait()
	return errors.Join(errs...)
}

// Kill ends all boxes at once.
func (a *Boundary) Kill() {
	for _, b := range a.All() {
		b.Kill()
	}
}
