package connector

import (
	"fmt"
	"slices"
)

// Life is which generation of an agent is attached, as its launcher counts (guest.md, G81).
type Life struct {
	Generation uint64  // greater than every earlier one's; 0: the connector counts
	Slice      *uint32 // of the address pools, as skep-init has it; nil: it has all of them
}

// lineage is what earlier generations of one agent had, for agents whose launcher counts.
type lineage struct {
	last   uint64
	slices []uint32
}

// fresh sees that a generation is new, and that none had its slice: an address that an
// earlier one's memory holds must not become another name's (G82, B57).
func (c *Connector) fresh(agent string, life Life) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lineages[agent]
	switch {
	case l == nil:
	case life.Generation != 0 && life.Generation <= l.last:
		return fmt.Errorf("generation %d is not new, there was %d: a life of its own needs a greater one", life.Generation, l.last)
	case life.Slice != nil && slices.Contains(l.slices, *life.Slice):
		return fmt.Errorf("pool slice %d was an earlier generation's: its addresses may be remembered; take another", *life.Slice)
	}
	return nil
}

// began takes note of a life whose box serves.
func (c *Connector) began(agent string, life Life) {
	if life == (Life{}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lineages[agent]
	if l == nil {
		l = &lineage{}
		if c.lineages == nil {
			c.lineages = map[string]*lineage{}
		}
		c.lineages[agent] = l
	}
	l.last = max(l.last, life.Generation)
	if life.Slice != nil {
		l.slices = append(l.slices, *life.Slice)
	}
}
