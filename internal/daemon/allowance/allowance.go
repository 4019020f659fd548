// Package allowance leases the bytes of cells' budgets to their boxes (rights.md, R9a).
//
// Its laws:
//   - What is leased is held in the ledger before the box hears of it: a box carries
//     nothing that is not there.
//   - Leases and what was settled never pass the limit; budget.Machine sees to it.
//   - At the end of a cell the unused part comes back, if the box told how many bytes it
//     carried. Of a box that ended without a word, and after a crash of skepd, each
//     lease counts as spent.
package allowance

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"skep.dev/skep/internal/budget"
	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/right"
)

// Record makes an entry of a cell durable.
type Record func(cell string, body kind.Body) error

// Accounts are the cells that have a budget of bytes.
type Accounts struct {
	machine *budget.Machine
	record  Record

	mu    sync.Mutex
	cells map[string]*account
}

type account struct {
	mu      sync.Mutex
	limit   int64
	holds   []lease // oldest first, without an end
	settled int64
	warned  bool
	told    bool // that nothing is left
}

type lease struct {
	hold   budget.HoldID
	amount int64
}

// New has no accounts yet.
func New(record Record) *Accounts {
	a := &Accounts{record: record, cells: map[string]*account{}}
	a.machine = budget.New(journal{a})
	return a
}

// Open gives a cell its budget of bytes, both directions together, if it has one.
func (a *Accounts) Open(cell string, net right.Limit) error {
	most, bounded := net.Value()
	if !bounded {
		return nil
	}
	if err := a.machine.Open(cell, "", budget.Of(budget.Bytes, most)); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cells[cell] = &account{limit: most}
	return nil
}

func (a *Accounts) of(cell string) *account {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cells[cell]
}

// Lease gives the next block: a sixteenth of what is left, 1 to 64 MiB, or the rest.
// 0 says that nothing is left. spent is what the box has carried so far.
func (a *Accounts) Lease(cell string, spent int64) (int64, error) {
	c := a.of(cell)
	if c == nil {
		return 0, fmt.Errorf("lease bytes to cell %s: it has no budget", cell)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	left := a.machine.Left(cell)[budget.Bytes]
	if left == 0 {
		return 0, a.exhausted(cell, c)
	}
	n := min(max(left/limit.LeaseParts, limit.MinLease), limit.MaxLease, left)
	h, err := a.machine.Reserve(cell, budget.Of(budget.Bytes, n))
	if err != nil {
		return 0, fmt.Errorf("lease bytes to cell %s: %w", cell, err)
	}
	c.holds = append(c.holds, lease{h, n})
	if used := c.limit - left + n; !c.warned && used >= c.limit-c.limit/5 { // 80 % (R11)
		c.warned = true
		err = a.record(cell, (*kind.BudgetWarned)(a.entry(cell, used)))
	}
	// The two last leases may be in use; of older ones nothing is left.
	for err == nil && len(c.holds) > 2 && spent-c.settled >= c.holds[0].amount {
		err = a.settle(c, 0, c.holds[0].amount)
	}
	if err != nil {
		return 0, fmt.Errorf("lease bytes to cell %s: %w", cell, err) // it is held, and spent
	}
	return n, nil
}

// exhausted records once that the limit is reached.
func (a *Accounts) exhausted(cell string, c *account) error {
	if c.told {
		return nil
	}
	c.told = true
	return a.record(cell, (*kind.BudgetExhausted)(a.entry(cell, c.limit)))
}

// settle ends a lease. c is locked.
func (a *Accounts) settle(c *account, at int, used int64) error {
	if _, err := a.machine.Settle(c.holds[at].hold, budget.Of(budget.Bytes, used)); err != nil {
		return err
	}
	c.settled += used
	c.holds = slices.Delete(c.holds, at, at+1)
	return nil
}

// Return takes back what a box has left of its leases, when all boxes of the cell have
// carried spent. What cannot be told from what is in use stays held until Close.
func (a *Accounts) Return(cell string, spent, back int64) error {
	c := a.of(cell)
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := len(c.holds) - 1; at >= 0 && back > 0; at-- {
		amount := c.holds[at].amount
		unused := min(back, amount)
		if amount-unused > spent-c.settled {
			continue
		}
		if err := a.settle(c, at, amount-unused); err != nil {
			return fmt.Errorf("take back bytes of cell %s: %w", cell, err)
		}
		back -= unused
	}
	return nil
}

// Used is how much of a cell's limit is leased or settled, and the limit.
func (a *Accounts) Used(cell string) (used, limit int64) {
	t, err := a.machine.Totals(cell)
	if err != nil {
		return 0, 0
	}
	return t.Settled[budget.Bytes] + t.Held[budget.Bytes], t.Limit[budget.Bytes]
}

// Close settles the leases of an ended cell by what its box carried, or as a whole
// where that is not known, and forgets the cell. It returns what counts as spent.
func (a *Accounts) Close(cell string, spent int64, known bool) (int64, error) {
	c := a.of(cell)
	if c == nil {
		return 0, nil
	}
	a.mu.Lock()
	delete(a.cells, cell)
	a.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.holds) > 0 {
		used := c.holds[0].amount
		if known {
			used = min(used, max(0, spent-c.settled))
		}
		if err := a.settle(c, 0, used); err != nil {
			return c.settled, fmt.Errorf("settle the bytes of cell %s: %w", cell, err)
		}
	}
	return c.settled, a.machine.Close(cell)
}

func (a *Accounts) entry(cell string, amount int64) *kind.Amount {
	e := &kind.Amount{Account: cell, Unit: "bytes", Amount: amount, Cause: "net"}
	if t, err := a.machine.Totals(cell); err == nil {
		e.Limit, e.Settled, e.Held = t.Limit[budget.Bytes], t.Settled[budget.Bytes], t.Held[budget.Bytes]
	}
	return e
}

// journal is the ledger as the machine writes it. That a cell has a limit is in its
// declaration.
type journal struct{ *Accounts }

var errOperation = errors.New("unknown operation of the budget")

// Append implements budget.Journal.
func (j journal) Append(e budget.Entry) error {
	if e.Op == budget.Opened || e.Op == budget.Closed {
		return nil
	}
	amount := e.Amount[budget.Bytes]
	body := j.entry(e.Account, amount)
	body.Hold, body.Cause = strconv.FormatUint(uint64(e.Hold), 10), ""
	switch e.Op {
	case budget.Reserved:
		return j.record(e.Account, (*kind.BudgetHeld)(body))
	case budget.Settled:
		c := j.leased(e.Account, e.Hold)
		body.Settled, body.Held = body.Settled+amount, body.Held-c
		return j.record(e.Account, (*kind.BudgetSettled)(body))
	case budget.Opened, budget.Closed:
	}
	return errOperation
}

// leased is the amount of a lease that is being settled.
func (j journal) leased(cell string, hold budget.HoldID) int64 {
	for _, h := range j.machine.Holds() {
		if h.Hold == hold && h.Account == cell {
			return h.Amount[budget.Bytes]
		}
	}
	return 0
}
