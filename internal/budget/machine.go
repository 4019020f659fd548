// Package budget is the one machine for all amounts: tokens, money, bytes, time
// (rights.md R9, R10).
//
// Its laws:
//   - Settled plus held never passes the limit of any account, at any instant,
//     under any number of callers.
//   - A reservation charges the account and all above it in one transaction, or
//     none of them.
//   - Take before writing, give back after writing: room is taken in memory
//     before its journal entry is written, and given back only when the entry
//     that frees it is durable. So every prefix of the journal obeys the first law.
//   - A hold whose outcome is unknown stays held: there is no timeout, and a
//     journal that cannot be written frees nothing.
//   - Only integers; an overflow is a refusal.
package budget

import (
	"errors"
	"fmt"
	"sync"
)

// HoldID names one reservation, unique within a Machine and its journal; never 0.
type HoldID uint64

// Journal makes an entry durable before Append returns. Appends may be called in
// parallel. A Machine without one keeps its accounts in memory alone.
type Journal interface {
	Append(Entry) error
}

// Machine holds accounts and holds. The zero Machine is not usable; see New.
type Machine struct {
	journal Journal

	mu       sync.Mutex
	accounts map[string]*account
	holds    map[HoldID]*hold
	last     HoldID
}

type account struct {
	id            string
	parent        *account // nil at a root
	limit         Amount
	settled, held Amount
}

type hold struct {
	account *account
	amount  Amount
	ending  bool // an end is being written: a second one is refused
}

// Errors that callers tell apart. A *Refused is the other one.
var (
	ErrNoAccount = errors.New("no such account")
	ErrNoHold    = errors.New("no such hold, or it ended before")
)

// Refused says which account and kind had no room.
type Refused struct {
	Account string
	Kind    Kind
	Limit   int64 // the account's limit of that kind
	Left    int64 // what was free at that instant
	Asked   int64
}

// Error names the account, the limit and what was asked.
func (r *Refused) Error() string {
	return fmt.Sprintf("budget of %s: %d %v asked, %d left of %d", r.Account, r.Asked, r.Kind, r.Left, r.Limit)
}

// New returns an empty machine; journal may be nil.
func New(journal Journal) *Machine {
	return &Machine{journal: journal, accounts: map[string]*account{}, holds: map[HoldID]*hold{}}
}

// Open adds an account under parent ("" for a root). A kind that limit leaves at
// zero is refused from then on; say Unlimited to only count it.
func (m *Machine) Open(id, parent string, limit Amount) error {
	if err := limit.check(); err != nil {
		return fmt.Errorf("open account %s: limit of %w", id, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.addLocked(id, parent, limit); err != nil {
		return fmt.Errorf("open account %s: %w", id, err)
	}
	// Written under the lock: an account must be in the journal before any
	// reservation on it can be.
	if err := m.append(Entry{Op: Opened, Account: id, Parent: parent, Amount: limit}); err != nil {
		delete(m.accounts, id)
		return fmt.Errorf("open account %s: %w", id, err)
	}
	return nil
}

func (m *Machine) addLocked(id, parent string, limit Amount) error {
	if id == "" {
		return errors.New("empty id")
	}
	if m.accounts[id] != nil {
		return errors.New("it exists")
	}
	var above *account
	if parent != "" {
		if above = m.accounts[parent]; above == nil {
			return fmt.Errorf("parent %s: %w", parent, ErrNoAccount)
		}
	}
	m.accounts[id] = &account{id: id, parent: above, limit: limit}
	return nil
}

// Reserve takes amount from the account and from all above it, or fails with a
// *Refused and takes nothing. The hold lasts until Settle or Release.
func (m *Machine) Reserve(id string, amount Amount) (HoldID, error) {
	if err := amount.check(); err != nil {
		return 0, fmt.Errorf("reserve on %s: %w", id, err)
	}
	m.mu.Lock()
	a := m.accounts[id]
	if a == nil {
		m.mu.Unlock()
		return 0, fmt.Errorf("reserve on %s: %w", id, ErrNoAccount)
	}
	if refused := a.fits(amount); refused != nil {
		m.mu.Unlock()
		return 0, refused
	}
	a.takeHeld(amount)
	m.last++
	h := m.last
	m.holds[h] = &hold{account: a, amount: amount}
	m.mu.Unlock()

	if err := m.append(Entry{Op: Reserved, Account: id, Hold: h, Amount: amount}); err != nil {
		// Nobody was told of this hold and nothing was done on it, but the
		// entry may have reached the disk all the same: giving the room back
		// could then break the first law after a restart. It stays held.
		return 0, fmt.Errorf("reserve on %s: %w", id, err)
	}
	return h, nil
}

// fits finds the first account up to the root without room for amount.
func (a *account) fits(amount Amount) *Refused {
	for ; a != nil; a = a.parent {
		for k := range amount {
			if left := a.left(Kind(k)); amount[k] > left {
				return &Refused{Account: a.id, Kind: Kind(k), Limit: a.limit[k], Left: left, Asked: amount[k]}
			}
		}
	}
	return nil
}

// left cannot overflow: settled plus held is within the limit by the first law.
func (a *account) left(k Kind) int64 { return a.limit[k] - a.settled[k] - a.held[k] }

func (a *account) takeHeld(amount Amount) {
	for ; a != nil; a = a.parent {
		a.held, _ = a.held.plus(amount) // fits was asked
	}
}

// append writes an entry where there is a journal.
func (m *Machine) append(e Entry) error {
	if m.journal == nil {
		return nil
	}
	if err := m.journal.Append(e); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}
