package budget

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// memJournal is a journal in memory that can be told to fail.
type memJournal struct {
	mu      sync.Mutex
	entries []Entry
	fail    error
}

func (j *memJournal) Append(e Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	j.entries = append(j.entries, e)
	return nil
}

func open(t testing.TB, m *Machine, id, parent string, tokens int64) {
	t.Helper()
	if err := m.Open(id, parent, Of(Tokens, tokens)); err != nil {
		t.Fatal(err)
	}
}

func TestZeroLimitRefuses(t *testing.T) {
	m := New(nil)
	if err := m.Open("cell", "", Amount{}); err != nil {
		t.Fatal(err)
	}
	var refused *Refused
	if _, err := m.Reserve("cell", Of(MicroUSD, 1)); !errors.As(err, &refused) || refused.Kind != MicroUSD {
		t.Errorf("got %v, want a refusal of usd_micro", err)
	}
	if _, err := m.Reserve("nobody", Amount{}); !errors.Is(err, ErrNoAccount) {
		t.Errorf("got %v, want ErrNoAccount", err)
	}
}

func TestParentIsChargedInTheSameTransaction(t *testing.T) {
	m := New(nil)
	open(t, m, "owner", "", 100)
	open(t, m, "cell", "owner", 80)
	open(t, m, "sub", "cell", Unlimited)
	h, err := m.Reserve("sub", Of(Tokens, 60))
	if err != nil {
		t.Fatal(err)
	}
	var refused *Refused
	if _, err := m.Reserve("sub", Of(Tokens, 21)); !errors.As(err, &refused) || refused.Account != "cell" || refused.Left != 20 {
		t.Errorf("got %v, want a refusal by cell with 20 left", err)
	}
	if got := m.Left("owner")[Tokens]; got != 40 {
		t.Errorf("owner has %d left after a refusal, want 40", got)
	}
	if s, err := m.Settle(h, Of(Tokens, 10)); err != nil || s.Charged[Tokens] != 10 {
		t.Errorf("settle: %v, %v", s, err)
	}
	for _, id := range []string{"owner", "cell", "sub"} {
		if got, _ := m.Totals(id); got.Settled[Tokens] != 10 || !got.Held.IsZero() {
			t.Errorf("%s: %+v", id, got)
		}
	}
	if _, err := m.Settle(h, Amount{}); !errors.Is(err, ErrNoHold) {
		t.Errorf("second settle: %v", err)
	}
}

func TestOverrunIsChargedUpToTheLimitAndSaid(t *testing.T) {
	m := New(nil)
	open(t, m, "cell", "", 100)
	h, _ := m.Reserve("cell", Of(Tokens, 50))
	s, err := m.Settle(h, Of(Tokens, 130))
	if err != nil || s.Charged[Tokens] != 100 || s.Overrun[Tokens] != 30 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestNegativeAndOverflowAreRefused(t *testing.T) {
	m := New(nil)
	open(t, m, "cell", "", Unlimited)
	if _, err := m.Reserve("cell", Of(Tokens, -1)); err == nil {
		t.Error("a negative reservation was taken")
	}
	h, err := m.Reserve("cell", Of(Tokens, math.MaxInt64))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Reserve("cell", Of(Tokens, 1)); err == nil {
		t.Error("a sum over int64 was taken")
	}
	if _, err := m.Settle(h, Of(Tokens, math.MinInt64)); err == nil {
		t.Error("a negative settlement was taken")
	}
	if err := m.Open("bad", "", Of(Tokens, -5)); err == nil {
		t.Error("a negative limit was taken")
	}
}

// Attacks the first law: many callers on sub-accounts of one limit, while an
// observer looks at every instant it can.
func TestParallelReservationsNeverPassTheLimit(t *testing.T) {
	const limit, callers, rounds = 1000, 16, 300
	m := New(&memJournal{})
	open(t, m, "owner", "", limit)
	var used atomic.Int64
	var work sync.WaitGroup
	for c := range callers {
		id := fmt.Sprintf("cell%d", c%4)
		if c < 4 {
			open(t, m, id, "owner", 400)
		}
		work.Go(func() {
			for i := range rounds {
				h, err := m.Reserve(id, Of(Tokens, int64(1+(c*7+i)%90)))
				if err != nil {
					continue
				}
				s, err := m.Settle(h, Of(Tokens, int64(i%3)))
				if err != nil {
					t.Error(err)
				}
				used.Add(s.Charged[Tokens])
			}
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	for {
		got, _ := m.Totals("owner")
		if got.Settled[Tokens]+got.Held[Tokens] > limit {
			t.Fatalf("over the limit: %+v", got)
		}
		select {
		case <-done:
			got, _ = m.Totals("owner")
			if got.Settled[Tokens] != used.Load() || !got.Held.IsZero() {
				t.Errorf("settled %d, callers were charged %d, held %v", got.Settled[Tokens], used.Load(), got.Held)
			}
			return
		default:
		}
	}
}

func TestUnwrittenEndKeepsItsHold(t *testing.T) {
	j := &memJournal{}
	m := New(j)
	open(t, m, "cell", "", 100)
	h, _ := m.Reserve("cell", Of(Tokens, 60))
	j.fail = errors.New("disk full")
	if _, err := m.Settle(h, Of(Tokens, 1)); err == nil {
		t.Fatal("settled without a journal")
	}
	if got := m.Left("cell")[Tokens]; got != 40 {
		t.Errorf("%d left, want 40", got)
	}
	if _, err := m.Reserve("cell", Of(Tokens, 1)); err == nil {
		t.Error("reserved without a journal")
	}
	j.fail = nil
	if _, err := m.Settle(h, Of(Tokens, 1)); err != nil {
		t.Errorf("the hold cannot be settled later: %v", err)
	}
}

func TestCloseWaitsForHolds(t *testing.T) {
	m := New(nil)
	open(t, m, "owner", "", 100)
	open(t, m, "cell", "owner", 100)
	h, _ := m.Reserve("cell", Of(Tokens, 5))
	if m.Close("cell") == nil || m.Close("owner") == nil {
		t.Error("closed an account in use")
	}
	m.Settle(h, Of(Tokens, 5))
	if err := m.Close("cell"); err != nil {
		t.Error(err)
	}
	if got, _ := m.Totals("owner"); got.Settled[Tokens] != 5 {
		t.Errorf("the owner forgot what a closed cell spent: %+v", got)
	}
}

// Property: for any sequence of steps the law holds after each, and every
// prefix of the journal replays to a machine that obeys it too (R13).
func TestLawsHoldForAnySequenceAndAnyCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := &memJournal{}
		m := New(j)
		ids := []string{"root", "a", "b", "aa"}
		parents := []string{"", "root", "root", "a"}
		for i, id := range ids {
			limit := rapid.Int64Range(0, 100).Draw(t, "limit")
			if err := m.Open(id, parents[i], Of(Tokens, limit).With(MicroUSD, Unlimited)); err != nil {
				t.Fatal(err)
			}
		}
		var holds []HoldID
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			amount := Of(Tokens, rapid.Int64Range(0, 60).Draw(t, "tokens")).With(MicroUSD, rapid.Int64Range(0, math.MaxInt64).Draw(t, "usd"))
			if len(holds) > 0 && rapid.Bool().Draw(t, "settle") {
				i := rapid.IntRange(0, len(holds)-1).Draw(t, "which")
				s, err := m.Settle(holds[i], amount)
				if err != nil || s.Charged.minus(amount.min(s.Charged)) != (Amount{}) {
					t.Fatalf("settle %v: %+v, %v", amount, s, err)
				}
				holds = slices.Delete(holds, i, i+1)
			} else if h, err := m.Reserve(rapid.SampledFrom(ids).Draw(t, "id"), amount); err == nil {
				holds = append(holds, h)
			}
			checkLaws(t, m)
		}
		for n := range len(j.entries) + 1 {
			again, err := Replay(slices.Values(j.entries[:n]), nil)
			if err != nil {
				t.Fatalf("replay of %d entries: %v", n, err)
			}
			checkLaws(t, again)
			if n == len(j.entries) {
				sameTotals(t, m, again, ids)
			}
		}
	})
}

func checkLaws(t *rapid.T, m *Machine) {
	for id, a := range m.accounts {
		sum, ok := a.settled.plus(a.held)
		if !ok || !sum.Within(a.limit) {
			t.Fatalf("%s: settled %v and held %v pass %v", id, a.settled, a.held, a.limit)
		}
	}
}

func sameTotals(t *rapid.T, a, b *Machine, ids []string) {
	for _, id := range ids {
		x, _ := a.Totals(id)
		y, _ := b.Totals(id)
		if x != y {
			t.Fatalf("%s: %+v after replay %+v", id, x, y)
		}
	}
	if len(a.Holds()) != len(b.Holds()) {
		t.Fatalf("holds: %d, after replay %d", len(a.Holds()), len(b.Holds()))
	}
}

func TestReplayRefusesWhatBreaksALaw(t *testing.T) {
	limit := Entry{Op: Opened, Account: "a", Amount: Of(Tokens, 10)}
	for name, entries := range map[string][]Entry{
		"over the limit":   {limit, {Op: Reserved, Account: "a", Hold: 1, Amount: Of(Tokens, 11)}},
		"hold used twice":  {limit, {Op: Reserved, Account: "a", Hold: 1}, {Op: Reserved, Account: "a", Hold: 1}},
		"end without hold": {limit, {Op: Settled, Hold: 9}},
		"no account":       {{Op: Reserved, Account: "a", Hold: 1}},
		"unknown":          {{Op: "gift"}},
		"negative":         {limit, {Op: Reserved, Account: "a", Hold: 1, Amount: Of(Tokens, -1)}},
	} {
		if _, err := Replay(slices.Values(entries), nil); err == nil {
			t.Errorf("%s was replayed", name)
		}
	}
}
