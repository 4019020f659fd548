package allowance

import (
	"fmt"
	"slices"

	"skep.dev/skep/internal/budget"
)

// Left is the accounts as they are left to another skepd (L20a).
type Left struct {
	Entries []budget.Entry         `json:"entries"`
	Cells   map[string]LeftAccount `json:"cells"`
}

// LeftAccount is what an account has beside the machine's totals.
type LeftAccount struct {
	Limit   int64       `json:"limit"`
	Holds   []LeftLease `json:"holds"` // oldest first
	Settled int64       `json:"settled"`
	Warned  bool        `json:"warned"`
	Told    bool        `json:"told"`
}

// LeftLease is a lease without an end.
type LeftLease struct {
	Hold   budget.HoldID `json:"hold"`
	Amount int64         `json:"amount"` // bytes
}

// Leave describes all accounts. No lease may be under way.
func (a *Accounts) Leave() Left {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := Left{Entries: a.machine.Entries(), Cells: map[string]LeftAccount{}}
	for id, c := range a.cells {
		c.mu.Lock()
		left := LeftAccount{Limit: c.limit, Settled: c.settled, Warned: c.warned, Told: c.told}
		for _, h := range c.holds {
			left.Holds = append(left.Holds, LeftLease{Hold: h.hold, Amount: h.amount})
		}
		c.mu.Unlock()
		l.Cells[id] = left
	}
	return l
}

// Inherit is New with the accounts that another skepd left.
func Inherit(record Record, l Left) (*Accounts, error) {
	a := New(record)
	m, err := budget.Replay(slices.Values(l.Entries), journal{a})
	if err != nil {
		return nil, fmt.Errorf("take over the bytes of cells: %w", err)
	}
	a.machine = m
	for id, left := range l.Cells {
		c := &account{limit: left.Limit, settled: left.Settled, warned: left.Warned, told: left.Told}
		for _, h := range left.Holds {
			c.holds = append(c.holds, lease{h.Hold, h.Amount})
		}
		a.cells[id] = c
	}
	return a, nil
}
