package budget

import "fmt"

// Settlement says what an end of a hold charged.
type Settlement struct {
	Charged Amount
	// Overrun is the part of the actual amount that found no room: it was
	// used, and could not be charged without passing a limit. Zero unless a
	// bound that was reserved turned out not to be one.
	Overrun Amount
}

// Settle ends a hold with what was really used; the rest of the hold is free
// again. More than the hold is charged as far as every account has room.
func (m *Machine) Settle(h HoldID, actual Amount) (Settlement, error) {
	if err := actual.check(); err != nil {
		return Settlement{}, fmt.Errorf("settle hold %d: %w", h, err)
	}
	m.mu.Lock()
	held := m.holds[h]
	if held == nil || held.ending {
		m.mu.Unlock()
		return Settlement{}, fmt.Errorf("settle hold %d: %w", h, ErrNoHold)
	}
	held.ending = true
	a := held.account
	// What is above the hold is taken now, before it is written.
	charged := actual.min(held.amount)
	extra := actual.minus(charged).min(a.room())
	a.takeHeld(extra)
	held.amount, _ = held.amount.plus(extra)
	charged, _ = charged.plus(extra)
	m.mu.Unlock()

	s := Settlement{Charged: charged, Overrun: actual.minus(charged)}
	err := m.append(Entry{Op: Settled, Account: a.id, Hold: h, Amount: charged, Overrun: s.Overrun})

	m.mu.Lock()
	defer m.mu.Unlock()
	held.ending = false
	if err != nil {
		return Settlement{}, fmt.Errorf("settle hold %d: %w", h, err) // it keeps its hold
	}
	m.endLocked(h, held, charged)
	return s, nil
}

// Release ends a hold of which nothing was used. Call it only when that is
// known; an unknown outcome keeps its hold.
func (m *Machine) Release(h HoldID) error {
	_, err := m.Settle(h, Amount{})
	return err
}

func (m *Machine) endLocked(h HoldID, held *hold, charged Amount) {
	for a := held.account; a != nil; a = a.parent {
		a.held = a.held.minus(held.amount)
		a.settled, _ = a.settled.plus(charged) // within what was held
	}
	delete(m.holds, h)
}

// room is what is free on the account and all above it, kind by kind.
func (a *account) room() Amount {
	var r Amount
	for k := range r {
		r[k] = a.left(Kind(k))
		for up := a.parent; up != nil; up = up.parent {
			r[k] = min(r[k], up.left(Kind(k)))
		}
	}
	return r
}

// Left returns what a reservation on the account could take at this instant; a
// later one may find less. An unknown account has nothing left.
func (m *Machine) Left(id string) Amount {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.accounts[id]
	if a == nil {
		return Amount{}
	}
	return a.room()
}

// Totals is the state of one account at one instant.
type Totals struct {
	Limit, Settled, Held Amount
}

// Totals returns the account's state; its sums include all accounts below it.
func (m *Machine) Totals(id string) (Totals, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.accounts[id]
	if a == nil {
		return Totals{}, fmt.Errorf("totals of %s: %w", id, ErrNoAccount)
	}
	return Totals{Limit: a.limit, Settled: a.settled, Held: a.held}, nil
}

// Held is a reservation whose outcome is not known yet.
type Held struct {
	Hold    HoldID
	Account string
	Amount  Amount
}

// Holds lists the open holds in no order: after a crash, the uncertain ones.
func (m *Machine) Holds() []Held {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Held, 0, len(m.holds))
	for id, h := range m.holds {
		out = append(out, Held{Hold: id, Account: h.account.id, Amount: h.amount})
	}
	return out
}

// Close forgets an account that has no hold and none below it; what it settled
// stays counted above it.
func (m *Machine) Close(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.accounts[id]
	if a == nil {
		return fmt.Errorf("close account %s: %w", id, ErrNoAccount)
	}
	if !a.held.IsZero() {
		return fmt.Errorf("close account %s: %v is held", id, a.held)
	}
	for _, other := range m.accounts {
		if other.parent == a {
			return fmt.Errorf("close account %s: %s is below it", id, other.id)
		}
	}
	for _, h := range m.holds { // a hold of nothing
		if h.account == a {
			return fmt.Errorf("close account %s: it has an open hold", id)
		}
	}
	if err := m.append(Entry{Op: Closed, Account: id}); err != nil {
		return fmt.Errorf("close account %s: %w", id, err)
	}
	delete(m.accounts, id)
	return nil
}
