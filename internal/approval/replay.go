package approval

import (
	"fmt"
	"strings"
	"time"

	"skep.dev/skep/internal/ledger/jcs"
	"skep.dev/skep/internal/ledger/kind"
)

// Recorded is one entry of a cell, with its time.
type Recorded struct {
	Time time.Time
	Body kind.Body
}

// Replay makes the cards of a living cell from its entries: what the machine kept before
// its program was replaced (C63). Entries of other kinds are passed over.
func (m *Machine) Replay(cell string, owner uint32, entries []Recorded) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var cards []*Card
	by := map[string]*Card{}
	for _, e := range entries {
		switch b := e.Body.(type) {
		case *kind.ApprovalOpened:
			if b.Detail == "" {
				continue
			}
			c, err := cardOf(cell, owner, e.Time, b)
			if err != nil {
				return err
			}
			cards, by[c.ID] = append(cards, c), c
		case *kind.ApprovalDecided:
			_, id, _ := strings.Cut(b.Proposal, " ")
			if c := by[id]; c != nil && c.State == Pending {
				c.decide(e.Time, b)
			}
		case *kind.FlowIntent:
			if c := by[strings.TrimPrefix(b.Rule, RulePrefix)]; c != nil && c.Rule() == b.Rule && c.State == Approved && c.Scope == Once {
				c.Used = true
			}
		}
	}
	for _, c := range cards {
		m.add(c)
	}
	return nil
}

func cardOf(cell string, owner uint32, at time.Time, b *kind.ApprovalOpened) (*Card, error) {
	var of bound
	if err := jcs.Decode([]byte(b.Detail), &of); err != nil {
		return nil, fmt.Errorf("read approval card %q: %w", b.Proposal, err)
	}
	expires, err := time.Parse(time.RFC3339Nano, b.Expires)
	if err != nil {
		return nil, fmt.Errorf("read approval card %q: %w", b.Proposal, err)
	}
	c := &Card{
		ID: of.ID, Kind: of.Kind, Cell: cell, Owner: owner, Visible: of.Visible, Proposal: of.Proposal,
		Opened: at.UTC(), Expires: expires, Hash: b.Hash, Count: 1, State: Pending,
	}
	if _, hash, err := c.text(); err != nil || hash != b.Hash || of.Cell != cell {
		return nil, fmt.Errorf("read approval card %q: it is not what its hash binds", b.Proposal)
	}
	return c, nil
}

func (c *Card) decide(at time.Time, b *kind.ApprovalDecided) {
	c.Decided = at.UTC()
	switch {
	case b.Decision == "allow":
		c.State, c.Scope = Approved, Scope(b.Scope)
	case b.Reason == "expired":
		c.State = Expired
	case b.Reason == "withdrawn":
		c.State = Withdrawn
	default:
		c.State, c.Scope = Denied, Once
	}
}
