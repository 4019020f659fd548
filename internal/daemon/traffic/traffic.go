// Package traffic counts the flows that are open in cells: those of one owner's cells
// together, which have a limit (boundary.md, B150), and each by its end, once (B190).
//
// Its laws:
//   - An intent is let in or refused before it is recorded; a refusal waits for nothing.
//   - A flow has one outcome: a box that did not hear that it was written sends it
//     again, and it is taken as written.
//   - What one owner has open is no business of another's.
package traffic

import (
	"sync"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/flow/limit"
)

// Owners are the people whose cells there are.
type Owners struct {
	mu  sync.Mutex
	all map[uint32]*owner
}

type owner struct {
	mu    sync.Mutex
	open  int
	turns float64 // for new flows, as of last
	last  time.Time
}

// Cell is what one cell has open.
type Cell struct {
	owner *owner

	mu   sync.Mutex
	open map[string]struct{} // by the flow's id
	over bool
}

// Cell begins to count for a cell of the owner with a uid.
func (o *Owners) Cell(uid uint32) *Cell {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[uint32]*owner{}
	}
	if o.all[uid] == nil {
		o.all[uid] = &owner{turns: limit.OwnerBurst, last: time.Now()}
	}
	return &Cell{owner: o.all[uid], open: map[string]struct{}{}}
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
// recorded already. The calls of one cell come one after the other.
func (c *Cell) Take(records []*skepv1.FlowRecord) Taken {
	t := Taken{cell: c, Keep: records[:0:0]}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range records {
		_, open := c.open[r.Flow]
		switch {
		case r.Kind == skepv1.FlowRecord_KIND_INTENT && !open:
			if why := c.owner.enter(); why != flow.None {
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

func (o *owner) enter() flow.Reason {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.turns = min(limit.OwnerBurst, o.turns+now.Sub(o.last).Seconds()*limit.OwnerNewFlows)
	o.last = now
	switch {
	case o.open >= limit.OwnerFlows:
		return flow.Busy
	case o.turns < 1:
		return flow.RateLimited
	}
	o.open++
	o.turns--
	return flow.None
}

func (o *owner) leave(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open -= n
}
