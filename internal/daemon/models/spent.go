package models

import (
	"maps"
	"sync"

	"skep.dev/skep/internal/budget"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/right"
)

// Spent is what a cell has used of its right to models, by its ledger's entries.
type Spent struct {
	Tokens   int64           `json:"tokens,omitzero"`
	MicroUSD int64           `json:"usd_micro,omitzero"`
	Held     map[string]Hold `json:"held,omitzero"` // by call, without an end or with an unknown one
}

// Hold is what a call may use at most.
type Hold struct {
	Tokens   int64 `json:"tokens"`
	MicroUSD int64 `json:"usd_micro"`
}

// left is what remains of a limit for another gateway. What the last one held and did
// not settle counts as spent: nobody knows what became of those calls (MD-3).
func (s Spent) left(m right.Model) (tokens, microUSD int64) {
	tokens, microUSD = s.Tokens, s.MicroUSD
	for _, h := range s.Held {
		tokens, microUSD = tokens+h.Tokens, microUSD+h.MicroUSD
	}
	return rest(m.Tokens, tokens), rest(m.Money, microUSD)
}

func rest(l right.Limit, spent int64) int64 {
	if n, bounded := l.Value(); bounded {
		return max(0, n-spent)
	}
	return budget.Unlimited
}

// accounts are those of the cells that were given to a gateway.
type accounts struct {
	mu  sync.Mutex
	all map[string]*Spent
}

func (a *accounts) open(cell string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]*Spent{}
	}
	if a.all[cell] == nil {
		a.all[cell] = &Spent{Held: map[string]Hold{}}
	}
}

func (a *accounts) close(cell string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, cell)
}

// of is a copy.
func (a *accounts) of(cell string) Spent {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.all[cell]
	if s == nil {
		return Spent{}
	}
	return Spent{Tokens: s.Tokens, MicroUSD: s.MicroUSD, Held: maps.Clone(s.Held)}
}

func (a *accounts) cells() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

// uncertain is the outcome of a call that may have been charged (internal/model).
const uncertain = "uncertain"

// count takes a durable entry, before the gateway hears that it is durable.
func (a *accounts) count(cell string, body kind.Body) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.all[cell]
	if s == nil {
		return
	}
	switch e := body.(type) {
	case *kind.ModelAdmitted:
		s.Held[e.Call] = Hold{Tokens: e.HeldInput + e.HeldOutput, MicroUSD: e.HeldMicroUSD}
	case *kind.ModelSettled:
		if _, held := s.Held[e.Call]; held && e.Outcome != uncertain {
			delete(s.Held, e.Call)
			s.Tokens += max(0, e.Input+e.Output)
			s.MicroUSD += max(0, e.MicroUSD)
		}
	}
}
