package budget

import (
	"fmt"
	"iter"
	"maps"
	"slices"
)

// Op is what an Entry records.
type Op string

// The operations of a journal.
const (
	Opened   Op = "opened"
	Reserved Op = "reserved"
	Settled  Op = "settled" // also a release: it settles nothing
	Closed   Op = "closed"
)

// Entry is one durable step. Amount is the limit, what is held or what was
// charged, by Op.
type Entry struct {
	Op      Op
	Account string
	Parent  string // Opened only
	Hold    HoldID // Reserved, Settled
	Amount  Amount
	Overrun Amount // Settled only
}

// Replay builds the machine that wrote entries, in their order (R13). A hold
// without an end comes back held. An entry that breaks a law is an error: the
// journal is then not one that this package wrote.
func Replay(entries iter.Seq[Entry], journal Journal) (*Machine, error) {
	m := New(journal)
	n := 0
	for e := range entries {
		if err := m.apply(e); err != nil {
			return nil, fmt.Errorf("replay budget entry %d (%s): %w", n, e.Op, err)
		}
		n++
	}
	return m, nil
}

// Entries are a short journal that Replay makes this machine of, to be left to a program
// that takes this one's place. Nothing may be under way.
func (m *Machine) Entries() []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Entry
	below := map[*account]Amount{} // what accounts directly below one have settled
	var open func(a *account)
	opened := map[*account]bool{}
	open = func(a *account) {
		if opened[a] {
			return
		}
		opened[a] = true
		parent := ""
		if a.parent != nil {
			open(a.parent)
			parent = a.parent.id
			below[a.parent], _ = below[a.parent].plus(a.settled)
		}
		out = append(out, Entry{Op: Opened, Account: a.id, Parent: parent, Amount: a.limit})
	}
	for _, id := range slices.Sorted(maps.Keys(m.accounts)) {
		open(m.accounts[id])
	}
	// A hold of its own settles what was settled, and the last one is not forgotten.
	last := m.last
	for _, id := range slices.Sorted(maps.Keys(m.accounts)) {
		a := m.accounts[id]
		if own := a.settled.minus(below[a]); !own.IsZero() || last > 0 {
			hold := max(last, 1)
			out = append(out, Entry{Op: Reserved, Account: id, Hold: hold, Amount: own}, Entry{Op: Settled, Account: id, Hold: hold, Amount: own})
			last = 0
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.holds)) {
		h := m.holds[id]
		out = append(out, Entry{Op: Reserved, Account: h.account.id, Hold: id, Amount: h.amount})
	}
	return out
}

// apply repeats one entry without writing it again.
func (m *Machine) apply(e Entry) error {
	if err := e.Amount.check(); err != nil {
		return err
	}
	switch e.Op {
	case Opened:
		return m.addLocked(e.Account, e.Parent, e.Amount)
	case Reserved:
		return m.applyReserved(e)
	case Settled:
		h := m.holds[e.Hold]
		if h == nil {
			return ErrNoHold
		}
		if extra := e.Amount.minus(e.Amount.min(h.amount)); !extra.IsZero() {
			if refused := h.account.fits(extra); refused != nil {
				return refused
			}
			h.account.takeHeld(extra)
			h.amount, _ = h.amount.plus(extra)
		}
		m.endLocked(e.Hold, h, e.Amount)
		return nil
	case Closed:
		delete(m.accounts, e.Account)
		return nil
	}
	return fmt.Errorf("unknown operation")
}

func (m *Machine) applyReserved(e Entry) error {
	a := m.accounts[e.Account]
	if a == nil {
		return ErrNoAccount
	}
	if e.Hold == 0 || m.holds[e.Hold] != nil {
		return fmt.Errorf("hold %d is not new", e.Hold)
	}
	if refused := a.fits(e.Amount); refused != nil {
		return refused
	}
	a.takeHeld(e.Amount)
	m.holds[e.Hold] = &hold{account: a, amount: e.Amount}
	m.last = max(m.last, e.Hold)
	return nil
}
