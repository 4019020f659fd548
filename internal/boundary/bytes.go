package boundary

import (
	"context"
	"errors"
	"sync"

	"skep.dev/skep/internal/flow"
)

// ErrExhausted says that the cell's budget of bytes is used up (R9a).
var ErrExhausted = errors.New("the budget of bytes is used up")

var errNotLeased = errors.New("lease bytes of the budget")

// Lender leases bytes, and hears how many were carried so far. It returns 0 when there
// are no more.
type Lender interface {
	Lease(ctx context.Context, spent int64) (int64, error)
}

// Bytes is what the flows of one cell may still carry, both ways together: leases of
// the daemon, of which each flow takes what it is about to move (R9a). Not one byte
// moves that was not leased. A nil Bytes has no bound, and costs nothing.
type Bytes struct {
	ctx    context.Context
	lender Lender

	mu      sync.Mutex
	left    int64 // of the leases
	low     int64 // the next lease is asked for below this
	out     int64 // taken, and not settled yet
	spent   int64
	asking  bool
	over    bool // there is no more to lease
	waiting []func(error)
}

// NewBytes leases from lender until ctx ends. Nothing is leased before the first byte.
func NewBytes(ctx context.Context, lender Lender) *Bytes {
	return &Bytes{ctx: ctx, lender: lender}
}

// Take hands out at most want bytes, and at once: 0 where none are left now. What is
// taken has to be settled, and soon: nobody else can have it.
func (b *Bytes) Take(want int) int {
	if b == nil {
		return want
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(int64(want), b.left)
	b.left -= n
	b.out += n
	if b.left < b.low {
		b.ask()
	}
	return int(n)
}

// Settle ends a Take of which used bytes were moved; the rest comes back. What was
// moved in and cannot be moved on comes back by Settle(0, -n).
func (b *Bytes) Settle(taken, used int) {
	if b == nil || taken == 0 && used == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out -= int64(taken)
	b.spent += int64(used)
	b.left += int64(taken) - int64(used)
	switch {
	case b.left > 0:
		b.wake(nil)
	case b.ended():
		b.wake(ErrExhausted)
	}
}

// Wait has wake called once, by another goroutine: with nil when there may be more to
// take, else with the reason why there is not.
func (b *Bytes) Wait(wake func(error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, wake)
	switch {
	case b.left > 0:
		b.wake(nil)
	case b.ended():
		b.wake(ErrExhausted)
	default:
		b.ask()
	}
}

// Charge waits until some of want bytes may be moved, and counts them as moved; with
// an error, none.
func (b *Bytes) Charge(ctx context.Context, want int) (int, error) {
	for b != nil && want > 0 {
		n := b.Take(want)
		b.Settle(n, n)
		if n > 0 {
			return n, nil
		}
		more := make(chan error, 1)
		b.Wait(func(err error) { more <- err })
		select {
		case err := <-more:
			if err != nil {
				return 0, err
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return want, nil
}

// Exhausted tells whether nothing can be carried any more.
func (b *Bytes) Exhausted() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended()
}

// Spent is how many bytes were carried so far; 0 without a bound.
func (b *Bytes) Spent() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}

// ended, wake and ask are for holders of mu.
func (b *Bytes) ended() bool { return b.over && b.left == 0 && b.out == 0 }

// wake tells all that wait. They may hold what the caller's caller holds, so they are
// told beside it.
func (b *Bytes) wake(why error) {
	for _, f := range b.waiting {
		go f(why)
	}
	b.waiting = nil
}

func (b *Bytes) ask() {
	if !b.asking && !b.over {
		b.asking = true
		go b.lease(b.spent)
	}
}

func (b *Bytes) lease(spent int64) {
	n, err := b.lender.Lease(b.ctx, spent)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking = false
	b.over = err == nil && n <= 0
	if n > 0 {
		b.left += n
		b.low = n / 4 // the next lease comes while this one is used
	}
	switch {
	case err != nil:
		b.wake(errors.Join(errNotLeased, err))
	case b.left > 0:
		b.wake(nil)
	case b.ended():
		b.wake(ErrExhausted)
	} // else something that is out may come back
}

// EndedBy is the reason of a flow that was ended for want of bytes, else None.
func EndedBy(err error) flow.Reason {
	switch {
	case errors.Is(err, ErrExhausted):
		return flow.BudgetExhausted
	case errors.Is(err, errNotLeased):
		return flow.RecordUnavailable
	}
	return flow.None
}
