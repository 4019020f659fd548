package boundary

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"skep.dev/skep/internal/flow"
)

// lender leases blocks until nothing is left.
type lender struct {
	mu          sync.Mutex
	left, block int64
	err         error
	asked       int
}

func (l *lender) Lease(context.Context, int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	n := min(l.left, l.block)
	l.left -= n
	return n, l.err
}

// Any number of flows together carry what was leased, to the byte, and then each is
// told that there is no more.
func TestBytesAreCarriedToTheLast(t *testing.T) {
	const limit, flows = 1 << 20, 16
	b := NewBytes(t.Context(), &lender{left: limit, block: limit / 16})
	var carried atomic.Int64
	var wait sync.WaitGroup
	for i := range flows {
		wait.Go(func() {
			for {
				n, err := b.Charge(t.Context(), 1+i*37)
				carried.Add(int64(n))
				if err != nil {
					if EndedBy(err) != flow.BudgetExhausted {
						t.Error(err)
					}
					return
				}
				// Some take more than they use, and give it back.
				taken := b.Take(1000)
				used := taken / 3
				b.Settle(taken, used)
				carried.Add(int64(used))
			}
		})
	}
	wait.Wait()
	if carried.Load() != limit || b.Spent() != limit || !b.Exhausted() {
		t.Errorf("carried %d, spent %d of %d, exhausted %v", carried.Load(), b.Spent(), limit, b.Exhausted())
	}
}

// What somebody still has out is waited for; once it comes back it is there for others.
func TestBytesThatComeBack(t *testing.T) {
	b := NewBytes(t.Context(), &lender{left: 10, block: 10})
	if _, err := b.Charge(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	taken := b.Take(100)
	got := make(chan error, 1)
	go func() {
		n, err := b.Charge(t.Context(), 6)
		if n != 6 {
			t.Errorf("%d bytes, %v", n, err)
		}
		got <- err
	}()
	b.Settle(taken, 0)
	if err := <-got; taken != 6 || err != nil {
		t.Errorf("taken %d, then %v", taken, err)
	}
	b.Settle(0, -2) // were moved in, and went no further
	if b.Exhausted() || b.Spent() != 8 {
		t.Errorf("exhausted %v, spent %d", b.Exhausted(), b.Spent())
	}
}

// A lease that fails ends who waits for it; the next one asks again.
func TestBytesNotLeased(t *testing.T) {
	l := &lender{err: errors.New("disk full")}
	b := NewBytes(t.Context(), l)
	if _, err := b.Charge(t.Context(), 1); EndedBy(err) != flow.RecordUnavailable {
		t.Errorf("%v", err)
	}
	l.mu.Lock()
	l.err, l.left, l.block = nil, 5, 5
	l.mu.Unlock()
	if n, err := b.Charge(t.Context(), 9); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// Without a bound nothing is counted and nothing refused.
func TestNoBytesIsNoBound(t *testing.T) {
	var b *Bytes
	n, err := b.Charge(t.Context(), 7)
	if n != 7 || err != nil || b.Take(9) != 9 || b.Exhausted() || b.Spent() != 0 {
		t.Error("a nil Bytes refuses")
	}
	b.Settle(9, 9)
}
