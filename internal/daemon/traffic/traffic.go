// Package traffic counts the flows that are open in cells: those of one owner's cells
// together, which have a limit (boundary.md, B150), and each by its end, once (B190).
//
// Its laws:
//   - An intent is let in or refused before it is recorded; a refusal waits for nothing.
//   - A flow has one outcome: a box that did not hear that it was written sends it
//     again, and it is taken as written.
//   - What one owner has open is no business of another's.
//   - A cell that opens flows as fast as it can leaves the owner's others their turns:
//     of what is kept each cell takes its share alone, and the shares of all that try
//     are half of what comes in.
package traffic

import (
	"maps"
	"slices"
	"sync"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/flow/limit"
)

// Owners are the people whose cells there are.
type Owners struct {
	PerCell int // how many flows a cell may have open, in all its boxes; 0: as many as its owner

	mu  sync.Mutex
	all map[uint32]*owner
}

type owner struct {
	mu    sync.Mutex
	open  int
	turns turns
	// In this second, counted since 1970, so many cells have tried to open a flow; and in the one before.
	second    int64
	now, then int
}

// turns are for new flows, as many as there were at last.
type turns struct {
	left float64
	last time.Time
}

// fill adds what time has brought: rate turns a second, and no more than most.
func (t *turns) fill(now time.Time, rate, most float64) {
	t.left = min(most, t.left+now.Sub(t.last).Seconds()*rate)
	t.last = now
}

// Cell is what one cell has open.
type Cell struct {
	owner *owner
	most  int

	mu   sync.Mutex
	open map[string]struct{} // by the flow's id
	over bool

	// For owner.mu held.
	turns  turns
	second int64 // when it last tried
}

// Cell begins to count for a cell of the owner with a uid.
func (o *Owners) Cell(uid uint32) *Cell {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[uint32]*owner{}
	}
	if o.all[uid] == nil {
		o.all[uid] = &owner{turns: turns{limit.OwnerBurst, time.Now()}}
	}
	return &Cell{owner: o.all[uid], most: o.PerCell, open: map[string]struct{}{}, turns: turns{limit.OwnerKept / 2, time.Now()}}
}

// Leave is what the cell has open, for another skepd (L20a).
func (c *Cell) Leave() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.open))
}

// Inherit is Cell for one that has flows open already.
func (o *Owners) Inherit(uid uint32, open []string) *Cell {
	c := o.Cell(uid)
	for _, id := range open {
		c.open[id] = struct{}{}
	}
	c.owner.leave(-len(c.open))
	return c
}

// Taken is what became of some records, until they are durable or not.
type Taken struct {
	Keep    []*skepv1.FlowRecord  // to be recorded
	Refused []*skepv1.RefusedFlow // intents that must not open, by their place in what was given

	cell   *Cell
	opened []string
	closed []string
}

// Take lets intents in as far as the owner has room, and drops outcomes that are
// recorded already. What several boxes of a cell have open counts together.
func (c *Cell) Take(records []*skepv1.FlowRecord) Taken {
	t := Taken{cell: c, Keep: records[:0:0]}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range records {
		_, open := c.open[r.Flow]
		switch {
		case r.Kind == skepv1.FlowRecord_KIND_INTENT && !open:
			why := flow.Busy
			if c.most == 0 || len(c.open) < c.most {
				why = c.owner.enter(c, time.Now())
			}
			if why != flow.None {
				t.Refused = append(t.Refused, &skepv1.RefusedFlow{Index: uint32(i), Reason: why.Token()})
				continue
			}
			c.open[r.Flow] = struct{}{}
			t.opened = append(t.opened, r.Flow)
		case r.Kind == skepv1.FlowRecord_KIND_OUTCOME && !open:
			continue
		case r.Kind != skepv1.FlowRecord_KIND_INTENT && open: // an intent that came too late is denied
			t.closed = append(t.closed, r.Flow)
			delete(c.open, r.Flow)
		}
		t.Keep = append(t.Keep, r)
	}
	return t
}

// Done says whether what was kept became durable; if not, nothing of it counts.
func (t *Taken) Done(durable bool) {
	c := t.cell
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	gone := t.closed
	if !durable {
		for _, id := range t.closed {
			c.open[id] = struct{}{}
		}
		gone = t.opened
		for _, id := range t.opened {
			delete(c.open, id)
		}
	}
	c.owner.leave(len(gone))
}

// End forgets a cell that has ended.
func (c *Cell) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over = true
		c.owner.leave(len(c.open))
		clear(c.open)
	}
}

// enter lets one flow of a cell in.
func (o *owner) enter(c *Cell, now time.Time) flow.Reason {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turns.fill(now, limit.OwnerNewFlows, limit.OwnerBurst)
	trying := float64(o.trying(c, now.Unix()))
	c.turns.fill(now, limit.OwnerNewFlows/2/trying, limit.OwnerKept/2/trying)
	kept := o.turns.left < limit.OwnerKept
	switch {
	case o.open >= limit.OwnerFlows:
		return flow.Busy
	case o.turns.left < 1, kept && c.turns.left < 1:
		return flow.RateLimited
	}
	o.open++
	o.turns.left--
	if kept {
		c.turns.left--
	}
	return flow.None
}

// trying is how many cells try to open flows, with this one.
func (o *owner) trying(c *Cell, second int64) int {
	if second != o.second {
		o.then = 0
		if second == o.second+1 {
			o.then = o.now
		}
		o.second, o.now = second, 0
	}
	if c.second != second {
		c.second = second
		o.now++
	}
	return max(o.now, o.then)
}

func (o *owner) leave(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open -= n
}
