package approval

import (
	"cmp"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"skep.dev/skep/internal/ledger/kind"
)

// Journal makes an entry of a cell durable before it returns.
type Journal interface {
	Append(cell string, body kind.Body) error
}

// Clock is where the machine's times come from.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func())
}

// Machine keeps the cards of the cells that live. Changed is told of a cell whose answers
// may be others than before; it is called without a lock held.
type Machine struct {
	Journal Journal
	Clock   Clock
	Changed func(cell string)

	mu    sync.Mutex
	cells map[string][]*Card // oldest first
	stops map[string]func()  // of timers, by card
}

// Ask is one question of a cell.
type Ask struct {
	Cell     string
	Owner    uint32
	Proposal Proposal
	Visible  Visible
	Count    uint64 // attempts that it stands for; 0 is one
}

// Open puts a question, unless the same one stands open or was answered. It returns the
// card; nil where the cell has too many open ones (B141).
func (m *Machine) Open(a Ask) (*Card, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.Count = max(a.Count, 1)
	open := 0
	for _, c := range m.cells[a.Cell] {
		if c.State == Pending {
			open++
		}
		if c.Proposal.about(a.Proposal) && (c.State == Pending || m.stands(c)) {
			c.Count += a.Count
			return new(*c), nil
		}
	}
	if open >= OpenCards {
		return nil, nil
	}
	now := m.Clock.Now().UTC()
	a.Visible.Findings = append([]string{}, a.Visible.Findings...) // none is written as none
	c := &Card{
		ID: newID(), Kind: Egress, Cell: a.Cell, Owner: a.Owner, Visible: a.Visible, Proposal: a.Proposal,
		Opened: now, Expires: now.Add(Patience), Count: a.Count, State: Pending,
	}
	text, hash, err := c.text()
	if err != nil {
		return nil, err
	}
	c.Hash = hash
	err = m.Journal.Append(c.Cell, &kind.ApprovalOpened{
		Proposal: c.Kind + " " + c.ID, Hash: hash, Subject: c.Visible.Title, Expires: c.Expires.UTC().Format(time.RFC3339Nano), Detail: string(text),
	})
	if err != nil {
		return nil, err
	}
	m.add(c)
	return new(*c), nil
}

// add keeps a card and arms its timer. mu is held.
func (m *Machine) add(c *Card) {
	if m.cells == nil {
		m.cells, m.stops = map[string][]*Card{}, map[string]func(){}
	}
	m.cells[c.Cell] = append(m.cells[c.Cell], c)
	m.arm(c)
}

// arm has a card looked at when its time comes. mu is held.
func (m *Machine) arm(c *Card) {
	if stop := m.stops[c.ID]; stop != nil {
		stop()
		delete(m.stops, c.ID)
	}
	if at := c.turns(); !at.IsZero() {
		cell, id := c.Cell, c.ID
		m.stops[id] = m.Clock.AfterFunc(max(0, at.Sub(m.Clock.Now())), func() { m.turn(cell, id) })
	}
}

// turns is when time changes what a card means; zero if never.
func (c *Card) turns() time.Time {
	switch {
	case c.State == Pending:
		return c.Expires
	case c.State == Approved && c.Scope == Once && !c.Used:
		return c.Decided.Add(OnceFor)
	case c.State == Denied:
		return c.Decided.Add(NoFor)
	}
	return time.Time{}
}

// turn does what time does: an open card expires, an answer stops counting.
func (m *Machine) turn(cell, id string) {
	m.mu.Lock()
	c := m.find(cell, id)
	if c != nil && c.State == Pending && !m.Clock.Now().Before(c.Expires) {
		// An expiry that cannot be written is one all the same: nothing opens.
		_ = m.Journal.Append(cell, m.decided(c, "block", "nobody", "clock", "", "expired"))
		c.State, c.Decided = Expired, m.Clock.Now()
	}
	m.mu.Unlock()
	m.tell(cell)
}

func (m *Machine) tell(cell string) {
	if m.Changed != nil {
		m.Changed(cell)
	}
}

func (m *Machine) find(cell, id string) *Card {
	for _, c := range m.cells[cell] {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func (m *Machine) decided(c *Card, decision, who, identity string, scope Scope, reason string) *kind.ApprovalDecided {
	return &kind.ApprovalDecided{
		Proposal: c.Kind + " " + c.ID, Hash: c.Hash, Decision: decision, Who: who, Identity: identity, Scope: string(scope), Reason: reason,
	}
}

// Decision is what a person says to a card, who read it under this hash.
type Decision struct {
	ID, Hash string
	Allow    bool
	Scope    Scope // of an approval
	By       uint32
}

// Decide takes an answer. It is durable, and counts, when it returns.
func (m *Machine) Decide(d Decision) (*Card, error) {
	c, err := m.decide(d)
	if err != nil {
		return nil, err
	}
	m.tell(c.Cell)
	return c, nil
}

func (m *Machine) decide(d Decision) (*Card, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.byID(d.ID)
	if !d.Allow {
		d.Scope = Once
	}
	switch {
	case c == nil:
		return nil, ErrNone
	case d.Scope != Once && d.Scope != Cell && d.Scope != Always:
		return nil, fmt.Errorf("%q is no scope: once, cell or rule", d.Scope)
	case c.Hash != d.Hash:
		return nil, ErrHash
	case (c.State == Approved && d.Allow && c.Scope == d.Scope) || (c.State == Denied && !d.Allow):
		return new(*c), nil
	case c.State == Approved || c.State == Denied:
		return nil, fmt.Errorf("card %s: %w: %s", c.ID, ErrDecided, c.State)
	case c.State != Pending:
		return nil, fmt.Errorf("card %s: %w: %s", c.ID, ErrOver, c.State)
	}
	word, state := "block", Denied
	if d.Allow {
		word, state = "allow", Approved
	}
	if err := m.Journal.Append(c.Cell, m.decided(c, word, fmt.Sprintf("uid:%d", d.By), "uid", d.Scope, "")); err != nil {
		return nil, err
	}
	c.State, c.Scope, c.Decided = state, d.Scope, m.Clock.Now().UTC()
	m.arm(c)
	return new(*c), nil
}

// byID finds a card by its id, or the beginning of it that only one has. mu is held.
func (m *Machine) byID(id string) (found *Card) {
	for _, cards := range m.cells {
		for _, c := range cards {
			switch {
			case c.ID == id:
				return c
			case len(id) < MinPrefix || !strings.HasPrefix(c.ID, id):
			case found != nil:
				return nil
			default:
				found = c
			}
		}
	}
	return found
}

// Get is one card, by its id or the beginning of it.
func (m *Machine) Get(id string) (*Card, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.byID(id); c != nil {
		return new(*c), nil
	}
	return nil, ErrNone
}

// List is every card of the cells that live, oldest first; with a cell, only its own.
func (m *Machine) List(cell string) []Card {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Card
	for id, cards := range m.cells {
		for _, c := range cards {
			if cell == "" || id == cell {
				out = append(out, *c)
			}
		}
	}
	slices.SortFunc(out, func(a, b Card) int { return cmp.Or(a.Opened.Compare(b.Opened), cmp.Compare(a.ID, b.ID)) })
	return out
}

// stands tells whether a card's answer counts now. mu is held.
func (m *Machine) stands(c *Card) bool {
	switch {
	case c.State == Denied, c.State == Approved && c.Scope == Once && !c.Used:
		return m.Clock.Now().Before(c.turns())
	case c.State == Approved:
		return c.Scope != Once
	}
	return false
}

// Answers are the cards of a cell whose answers count now, and those approved once that a
// flow has taken: they stand for it.
func (m *Machine) Answers(cell string) []Card {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Card
	for _, c := range m.cells[cell] {
		if m.stands(c) || c.Used {
			out = append(out, *c)
		}
	}
	return out
}

// Took notes that a flow has opened under a rule: an answer that was given once is used
// then. The flow's own entry names it.
func (m *Machine) Took(cell, rule string) {
	id, ours := strings.CutPrefix(rule, RulePrefix)
	if !ours {
		return
	}
	m.mu.Lock()
	c := m.find(cell, id)
	used := c != nil && c.State == Approved && c.Scope == Once && !c.Used
	if used {
		c.Used = true
		m.arm(c)
	}
	m.mu.Unlock()
	if used {
		m.tell(cell)
	}
}

// End withdraws what is open of a cell that ends, and forgets the cell.
func (m *Machine) End(cell string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var failed error
	for _, c := range m.cells[cell] {
		if c.State == Pending && failed == nil {
			failed = m.Journal.Append(cell, m.decided(c, "block", "nobody", "end of the cell", "", "withdrawn"))
		}
	}
	m.forget(cell)
	return failed
}

// forget is for mu held.
func (m *Machine) forget(cell string) {
	for _, c := range m.cells[cell] {
		if stop := m.stops[c.ID]; stop != nil {
			stop()
			delete(m.stops, c.ID)
		}
	}
	delete(m.cells, cell)
}

// MinPrefix is how much of an id is enough to name a card.
const MinPrefix = 4

// newID is 80 random bits.
func newID() string {
	var raw [10]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand)
	return strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))
}

// Forget leaves a cell without a word: whoever asked only reads what was.
func (m *Machine) Forget(cell string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(cell)
}
