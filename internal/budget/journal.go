package budget

import (
	"fmt"
	"iter"
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
