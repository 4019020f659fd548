package daemon

import (
	"path/filepath"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/approval"
	"skep.dev/skep/internal/daemon/approvals"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/counting"
)

// approvals is where cells' questions go.
func (d *Daemon) approvals() (*approvals.Approvals, error) {
	standing, err := approvals.OpenStanding(filepath.Join(d.State, "approvals.json"))
	if err != nil {
		return nil, err
	}
	journal := counting.Journal{Journal: d.record, Counts: d.Metrics}
	return &approvals.Approvals{
		Machine:  &approval.Machine{Journal: journal, Clock: d.Clock, Changed: d.swapPolicy},
		Standing: standing, Cells: d.cells, Journal: journal, Swap: d.swapPolicy,
		Ledger: filepath.Join(d.State, "ledger"), Log: d.Log,
		Lives: func() (ids []string) {
			for _, l := range d.lives() {
				ids = append(ids, l.id)
			}
			return ids
		},
	}, nil
}

// policy is what a cell's box decides by: the profile's rules under the ceiling as it
// stands, with what people have said (B87, B143).
func (d *Daemon) policy(l *life) (*skepv1.BoxPolicy, error) {
	ceiling, err := d.Ceiling()
	if err != nil {
		return nil, err
	}
	p := boxlink.PolicyOf(l.profile, ceiling)
	if r, ok := d.cells.Get(l.id); ok {
		p.Answers = d.asked.Answers(r)
	}
	return boxlink.Wire(p, l.secrets.Wire())
}

// swapPolicy gives a cell's box the policy of now (B144). Where it cannot be made, the
// box keeps the one it has: what was said then opens nothing.
func (d *Daemon) swapPolicy(id string) {
	l := d.lifeOf(id)
	if l == nil {
		return
	}
	l.swapping.Lock() // the last one that is made is the last one that is sent
	defer l.swapping.Unlock()
	all := l.boundary.All()
	if len(all) == 0 {
		return
	}
	p, err := d.policy(l)
	if err != nil {
		d.Metrics.Swap(false)
		d.Log.Error("the policy of a cell stays as it is", "cell", id, "err", err)
		return
	}
	d.Metrics.Swap(true)
	for _, b := range all { // one that was replaced has flows that are judged again, too
		b.Link.Swap(p)
	}
}
