package handover

import (
	"fmt"
	"time"

	"skep.dev/skep/internal/handover/bequest"
)

// Left is what waits at a desk, as it is left to another skepd (cell.md, L20a).
type Left struct {
	Ticket string       `json:"ticket"`
	UID    uint32       `json:"uid"`
	Fetch  bool         `json:"fetch"`
	Until  time.Time    `json:"until"`
	Roles  []Role       `json:"roles"`
	Files  []bequest.FD `json:"files"`
}

// Waiting describes what waits, for an heir. Nobody may be at the desk.
func (d *Desk) Waiting(e *bequest.Estate) (all []Left) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ticket, w := range d.waiting {
		l := Left{Ticket: ticket, UID: w.uid, Fetch: w.fetch, Until: w.until, Roles: w.Roles}
		for _, f := range w.Files {
			l.Files = append(l.Files, e.Leave(f))
		}
		all = append(all, l)
	}
	return all
}

// Inherit keeps what waited at another desk until its time.
func (d *Desk) Inherit(all []Left, h *bequest.Heir) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range all {
		if len(l.Roles) != len(l.Files) || d.waiting[l.Ticket] != nil {
			return fmt.Errorf("take over a ticket: %d descriptors for %d roles", len(l.Files), len(l.Roles))
		}
		e := &entry{Bundle: Bundle{Roles: l.Roles}, uid: l.UID, fetch: l.Fetch, until: l.Until}
		for _, fd := range l.Files {
			e.Files = append(e.Files, h.Need(fd, "ticket"))
		}
		if err := h.Err(); err != nil {
			return err
		}
		e.stop = d.clock.AfterFunc(max(0, l.Until.Sub(d.clock.Now())), func() { d.expire(l.Ticket) })
		d.waiting[l.Ticket] = e
	}
	return nil
}

// Talking tells how many are at the desk.
func (d *Desk) Talking() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}
