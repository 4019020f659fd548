package allowance

import (
	"encoding/json"
	"testing"

	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/right"
)

// However often skepd is replaced, a cell is lent its limit and no more, each lease
// settled once.
func TestAccountsAreLeft(t *testing.T) {
	b := &book{}
	a := New(b.record)
	const most = 40 << 20
	if err := a.Open("c", right.AtMost(most)); err != nil {
		t.Fatal(err)
	}
	var lent int64
	for {
		n, err := a.Lease("c", max(0, lent-limit.MinLease))
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		lent += n
		raw, err := json.Marshal(a.Leave())
		if err != nil {
			t.Fatal(err)
		}
		var l Left
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatal(err)
		}
		if a, err = Inherit(b.record, l); err != nil {
			t.Fatal(err)
		}
	}
	if lent != most {
		t.Errorf("%d bytes were lent of %d", lent, most)
	}
	if n := b.count(kind.KindBudgetWarned); n != 1 {
		t.Errorf("it was warned %d times", n)
	}
	if n, err := a.Lease("c", lent); n != 0 || err != nil || b.count(kind.KindBudgetExhausted) != 1 {
		t.Errorf("%d bytes more, %v; %d times the end was told", n, err, b.count(kind.KindBudgetExhausted))
	}
	spent, err := a.Close("c", lent-5, true)
	if err != nil || spent != lent-5 {
		t.Errorf("%d spent, %v", spent, err)
	}
	if sum, open := b.spent(); sum != lent-5 || open != 0 {
		t.Errorf("the ledger has %d spent, and %d leases open", sum, open)
	}
}
