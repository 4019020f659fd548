package allowance

import (
	"errors"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/right"
)

// book is a ledger of budget entries.
type book struct {
	mu      sync.Mutex
	entries []kind.Body
	err     error
}

func (b *book) record(_ string, body kind.Body) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.entries = append(b.entries, body)
	return nil
}

// spent is what the entries say: what was settled, and each lease without an end.
func (b *book) spent() (sum int64, open int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := map[string]int64{}
	for _, e := range b.entries {
		switch e := e.(type) {
		case *kind.BudgetHeld:
			held[e.Hold] = e.Amount
		case *kind.BudgetSettled:
			delete(held, e.Hold)
			sum += e.Amount
		}
	}
	for _, n := range held {
		sum += n
	}
	return sum, len(held)
}

func (b *book) count(k kind.Kind) (n int) {
	for _, e := range b.entries {
		if e.Kind() == k {
			n++
		}
	}
	return n
}

// Whatever the limit and however a box uses its leases: it never has more than the
// limit, each block has its size, and at the end the ledger has what was carried.
func TestLeasesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 1<<32).Draw(t, "limit")
		b := &book{}
		a := New(b.record)
		if err := a.Open("c", right.AtMost(limit)); err != nil {
			t.Fatal(err)
		}
		var leased, spent int64
		for range rapid.IntRange(0, 300).Draw(t, "leases") {
			left := limit - leased
			n, err := a.Lease("c", spent)
			want := min(max(left/16, 1<<20), 64<<20, left)
			if err != nil || n != want {
				t.Fatalf("a lease of %d with %d left, %v", n, left, err)
			}
			leased += n
			spent += rapid.Int64Range(0, leased-spent).Draw(t, "carried")
			if sum, _ := b.spent(); sum > limit || sum < spent {
				t.Fatalf("the ledger has %d of %d, carried %d", sum, limit, spent)
			}
		}
		got, err := a.Close("c", spent, true)
		if sum, open := b.spent(); err != nil || got != spent || sum != spent || open != 0 {
			t.Fatalf("carried %d, told %d, the ledger has %d and %d open leases, %v", spent, got, sum, open, err)
		}
	})
}

// A box that ended without a word has carried all that it was lent; so it is after a
// crash, when nothing is written any more.
func TestUnknownCountsAsSpent(t *testing.T) {
	b := &book{}
	a := New(b.record)
	if err := a.Open("c", right.AtMost(10<<20)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := a.Lease("c", 100); err != nil {
			t.Fatal(err)
		}
	}
	if sum, open := b.spent(); sum != 3<<20 || open != 3 {
		t.Errorf("after a crash here: %d, %d open", sum, open)
	}
	if got, err := a.Close("c", 0, false); got != 3<<20 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if sum, open := b.spent(); sum != 3<<20 || open != 0 {
		t.Errorf("%d, %d open", sum, open)
	}
}

// The owner is told once at 80 %, and once that nothing is left.
func TestOwnerIsTold(t *testing.T) {
	b := &book{}
	a := New(b.record)
	if err := a.Open("c", right.AtMost(10<<20)); err != nil {
		t.Fatal(err)
	}
	for i := range 13 {
		n, err := a.Lease("c", 0)
		if err != nil || n != map[bool]int64{true: limit.MinLease}[i < 10] {
			t.Errorf("lease %d is of %d bytes, %v", i, n, err)
		}
		if warned := b.count(kind.KindBudgetWarned); warned != map[bool]int{true: 1}[i >= 7] {
			t.Errorf("after lease %d: %d warnings", i, warned)
		}
	}
	if n := b.count(kind.KindBudgetExhausted); n != 1 {
		t.Errorf("told %d times that nothing is left", n)
	}
	if used, limit := a.Used("c"); used != limit {
		t.Errorf("%d of %d used", used, limit)
	}
}

// What cannot be held durably is not lent.
func TestNoLedgerNoLease(t *testing.T) {
	b := &book{err: errors.New("disk full")}
	a := New(b.record)
	if err := a.Open("c", right.AtMost(1<<30)); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Lease("c", 0); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := a.Open("other", right.Limit{}); err != nil {
		t.Error(err)
	}
	if _, err := a.Lease("other", 0); err == nil {
		t.Error("a cell without a budget got a lease")
	}
}

// However many boxes a cell has in turn: what each leaves of its leases comes back, so
// that a cell which carries little may have any number; and the ledger never has less
// than was carried, nor more than the limit.
func TestBoxesGiveBackWhatTheyLeave(t *testing.T) {
	type box struct{ leased, carried int64 }
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 1<<28).Draw(t, "limit")
		b := &book{}
		a := New(b.record)
		if err := a.Open("c", right.AtMost(limit)); err != nil {
			t.Fatal(err)
		}
		boxes, ended := []*box{{}}, int64(0)
		carried := func() int64 {
			sum := ended
			for _, x := range boxes {
				sum += x.carried
			}
			return sum
		}
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			x := boxes[rapid.IntRange(0, len(boxes)-1).Draw(t, "box")]
			switch rapid.IntRange(0, 3).Draw(t, "does") {
			case 0, 1:
				n, err := a.Lease("c", carried())
				if err != nil {
					t.Fatal(err)
				}
				x.leased += n
				x.carried += rapid.Int64Range(0, x.leased-x.carried).Draw(t, "carried")
			case 2:
				boxes = append(boxes, &box{})
			default:
				if len(boxes) == 1 {
					continue
				}
				gone := boxes[0]
				boxes = boxes[1:]
				ended += gone.carried
				if err := a.Return("c", carried(), gone.leased-gone.carried); err != nil {
					t.Fatal(err)
				}
			}
			out := int64(0) // in the hands of boxes
			for _, x := range boxes {
				out += x.leased - x.carried
			}
			if sum, _ := b.spent(); sum > limit || sum < carried()+out {
				t.Fatalf("the ledger has %d of %d, carried %d, and %d may be", sum, limit, carried(), out)
			}
		}
		got, err := a.Close("c", carried(), true)
		if sum, open := b.spent(); err != nil || got != carried() || sum != got || open != 0 {
			t.Fatalf("carried %d, told %d, the ledger has %d and %d open leases, %v", carried(), got, sum, open, err)
		}
	})
}

// A hundred boxes that carry nothing use nothing up.
func TestIdleBoxesUseNothingUp(t *testing.T) {
	a := New((&book{}).record)
	if err := a.Open("c", right.AtMost(3<<20)); err != nil {
		t.Fatal(err)
	}
	for i := range int64(100) {
		n, err := a.Lease("c", i)
		if err != nil || n == 0 {
			t.Fatalf("box %d got %d, %v", i, n, err)
		}
		if err := a.Return("c", i+1, n-1); err != nil { // it carried one byte
			t.Fatal(err)
		}
	}
	if used, _ := a.Used("c"); used != 100 {
		t.Errorf("%d are used", used)
	}
}
