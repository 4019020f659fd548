package approval

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/ledger/kind"
)

// hand is a clock that is turned by hand.
type hand struct {
	mu     sync.Mutex
	now    time.Time
	timers map[int]timer
	next   int
}

type timer struct {
	at time.Time
	f  func()
}

func (h *hand) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *hand) AfterFunc(d time.Duration, f func()) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	id := h.next
	h.timers[id] = timer{h.now.Add(d), f}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.timers, id)
	}
}

func (h *hand) turn(d time.Duration) {
	h.mu.Lock()
	h.now = h.now.Add(d)
	var due []func()
	for id, t := range h.timers {
		if !t.at.After(h.now) {
			due = append(due, t.f)
			delete(h.timers, id)
		}
	}
	h.mu.Unlock()
	for _, f := range due {
		f()
	}
}

// journal keeps entries, or fails.
type journal struct {
	mu      sync.Mutex
	clock   *hand
	entries map[string][]Recorded
	fails   error
}

func (j *journal) Append(cell string, b kind.Body) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fails == nil {
		j.entries[cell] = append(j.entries[cell], Recorded{j.clock.Now(), b})
	}
	return j.fails
}

func machine() (*Machine, *journal, *hand) {
	clock := &hand{now: time.Unix(1000, 0), timers: map[int]timer{}}
	j := &journal{clock: clock, entries: map[string][]Recorded{}}
	return &Machine{Journal: j, Clock: clock}, j, clock
}

func ask(host string) Ask {
	return Ask{Cell: "c", Owner: 7, Proposal: Proposal{Host: host, Port: 443, Transport: "tcp"}, Visible: Visible{Title: "connect to " + host}}
}

func mustOpen(t *testing.T, m *Machine, a Ask) *Card {
	t.Helper()
	c, err := m.Open(a)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	return c
}

// B141: one card for one destination, at most 20 open, and none without its entry.
func TestOneCardForOneQuestion(t *testing.T) {
	m, j, _ := machine()
	a := ask("a.test")
	first := mustOpen(t, m, a)
	a.Count = 4
	if again := mustOpen(t, m, a); again.ID != first.ID || again.Count != 5 || len(j.entries["c"]) != 1 {
		t.Errorf("%+v, %d entries", again, len(j.entries["c"]))
	}
	for i := 1; i < OpenCards; i++ {
		mustOpen(t, m, ask(fmt.Sprint(i, ".test")))
	}
	if c, err := m.Open(ask("more.test")); c != nil || err != nil {
		t.Errorf("%+v, %v", c, err)
	}
	if err := m.End("c"); err != nil || len(m.List("")) != 0 || len(j.entries["c"]) != 2*OpenCards {
		t.Errorf("%v, %d cards, %d entries", err, len(m.List("")), len(j.entries["c"]))
	}
	j.fails = errors.New("full")
	if c, err := m.Open(ask("b.test")); err == nil || len(m.List("")) != 0 {
		t.Errorf("a card without an entry: %+v", c)
	}
}

// B143: what the scopes mean, and that time denies.
func TestScopes(t *testing.T) {
	m, _, clock := machine()
	told := 0
	m.Changed = func(string) { told++ }
	say := func(host string, allow bool, s Scope) *Card {
		c := mustOpen(t, m, ask(host))
		c, err := m.Decide(Decision{ID: c.ID, Hash: c.Hash, Allow: allow, Scope: s, By: 7})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	once, cell, no := say("once.test", true, Once), say("cell.test", true, Cell), say("no.test", false, "")
	if told != 3 || len(m.Answers("c")) != 3 {
		t.Errorf("told %d times, %d answers", told, len(m.Answers("c")))
	}
	m.Took("c", cell.Rule())
	m.Took("c", "net-1")
	m.Took("c", once.Rule())
	if a := m.Answers("c"); len(a) != 3 || !a[0].Used || a[1].Used || told != 4 {
		t.Errorf("%+v, told %d times", a, told)
	}
	if again := mustOpen(t, m, ask("once.test")); again.ID == once.ID {
		t.Error("a used answer keeps the next question away")
	}
	if again := mustOpen(t, m, ask("no.test")); again.ID != no.ID {
		t.Error("a person is asked again at once")
	}
	unused, open := say("unused.test", true, Once), mustOpen(t, m, ask("open.test"))
	clock.turn(OnceFor)
	if a := m.Answers("c"); len(a) != 2 || a[0].ID != once.ID || a[1].ID != cell.ID {
		t.Errorf("%+v", a)
	}
	if again := mustOpen(t, m, ask("unused.test")); again.ID == unused.ID {
		t.Error("an answer counts after its time")
	}
	clock.turn(Patience)
	if c, err := m.Get(open.ID); err != nil || c.State != Expired {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := m.Decide(Decision{ID: open.ID, Hash: open.Hash, Allow: true, Scope: Once}); !errors.Is(err, ErrOver) {
		t.Errorf("%v", err)
	}
}

// C61, C64: only what was read is decided, the first answer counts, and nothing counts
// that was not written.
func TestDecide(t *testing.T) {
	m, j, _ := machine()
	c, other := mustOpen(t, m, ask("a.test")), mustOpen(t, m, ask("b.test"))
	for what, d := range map[string]Decision{
		"another card's hash": {ID: c.ID, Hash: other.Hash, Allow: true, Scope: Once}, "no hash": {ID: c.ID, Allow: true, Scope: Once},
		"no card": {ID: "zzzz", Hash: c.Hash, Allow: true, Scope: Once}, "no scope": {ID: c.ID, Hash: c.Hash, Allow: true, Scope: "all"},
	} {
		if got, err := m.Decide(d); err == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
	yes := Decision{ID: c.ID[:6], Hash: c.Hash, Allow: true, Scope: Cell, By: 7}
	j.fails = errors.New("full")
	if _, err := m.Decide(yes); err == nil || len(m.Answers("c")) != 0 {
		t.Error("an answer counts that was not written")
	}
	j.fails = nil
	for range 2 {
		if got, err := m.Decide(yes); err != nil || got.State != Approved {
			t.Errorf("%+v, %v", got, err)
		}
	}
	n := len(j.entries["c"])
	if _, err := m.Decide(Decision{ID: c.ID, Hash: c.Hash}); !errors.Is(err, ErrDecided) || n != 3 || len(j.entries["c"]) != n {
		t.Errorf("%v, %d entries", err, n)
	}
	// 1,000 contradicting answers at once: one counts.
	var wait sync.WaitGroup
	for i := range 1000 {
		wait.Go(func() { _, _ = m.Decide(Decision{ID: other.ID, Hash: other.Hash, Allow: i%2 == 0, Scope: Once}) })
	}
	wait.Wait()
	if got := len(j.entries["c"]) - n; got != 1 {
		t.Errorf("%d answers were written", got)
	}
}

// C63: what is read again is what was.
func TestReplay(t *testing.T) {
	m, j, clock := machine()
	for i, s := range []Scope{Once, Once, Cell, Always, "no", ""} {
		c := mustOpen(t, m, ask(fmt.Sprint("h", i, ".test")))
		clock.turn(time.Second)
		if s != "" {
			if _, err := m.Decide(Decision{ID: c.ID, Hash: c.Hash, Allow: s != "no", Scope: s, By: 7}); err != nil {
				t.Fatal(err)
			}
		}
		if i == 0 {
			_ = j.Append("c", &kind.FlowIntent{Rule: c.Rule()})
			m.Took("c", c.Rule())
		}
	}
	again := &Machine{Journal: j, Clock: clock}
	if err := again.Replay("c", 7, j.entries["c"]); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.List("c"), m.List("c")) || !reflect.DeepEqual(again.Answers("c"), m.Answers("c")) {
		t.Errorf("%+v\n%+v", again.List("c"), m.List("c"))
	}
	clock.turn(Patience)
	if c := again.List("c")[5]; c.State != Expired {
		t.Errorf("%+v", c)
	}
	forged := *j.entries["c"][0].Body.(*kind.ApprovalOpened)
	forged.Detail = forged.Detail[:len(forged.Detail)-1] + " }"
	if err := (&Machine{Journal: j, Clock: clock}).Replay("d", 7, []Recorded{{clock.now, &forged}}); err == nil {
		t.Error("another cell's card is taken")
	}
}
