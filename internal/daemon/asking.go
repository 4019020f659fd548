package daemon

import (
	"fmt"
	"path/filepath"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/approval"
	"skep.dev/skep/internal/daemon/approvals"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
)

// approvals is where cells' questions go.
func (d *Daemon) approvals() (*approvals.Approvals, error) {
	standing, err := approvals.OpenStanding(filepath.Join(d.State, "approvals.json"))
	if err != nil {
		return nil, err
	}
	return &approvals.Approvals{
		Machine:  &approval.Machine{Journal: d.record, Clock: d.Clock, Changed: d.swapPolicy},
		Standing: standing, Cells: d.cells, Journal: d.record, Swap: d.swapPolicy,
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
	return boxlink.Wire(p)
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
		d.Log.Error("the policy of a cell stays as it is", "cell", id, "err", err)
		return
	}
	for _, b := range all { // one that was replaced has flows that are judged again, too
		b.Link.Swap(p)
	}
}

// ask puts to people what a cell's box was not sure of.
func (d *Daemon) ask(l *life, records []*skepv1.FlowRecord) {
	r, ok := d.cells.Get(l.id)
	if !ok {
		return
	}
	if err := d.asked.Take(r, records); err != nil {
		d.Log.Error("nobody is asked: it cannot be recorded", "cell", l.id, "err", err)
	}
}

// withdraw ends what is asked for a cell that has ended.
func (d *Daemon) withdraw(l *life) {
	if err := d.asked.Machine.End(l.id); err != nil {
		d.Log.Warn("an open question of a cell has no end in the ledger", "cell", l.id, "err", err)
	}
}

// recoverAnswers makes up for a crash between an answer's entry and its effect.
func (d *Daemon) recoverAnswers(r cells.Record) error {
	entries, err := d.questions(r.ID)
	if err != nil || len(entries) == 0 {
		return err
	}
	return d.asked.Recover(r, entries)
}

// replayAnswers makes the cards of a cell that another skepd left (B142).
func (d *Daemon) replayAnswers(r cells.Record) error {
	entries, err := d.questions(r.ID)
	if err != nil || len(entries) == 0 {
		return err
	}
	used, err := d.entries(r.ID, kind.KindFlowIntent) // of answers for one flow
	if err != nil {
		return err
	}
	return d.asked.Machine.Replay(r.ID, r.UID, append(entries, used...))
}

func (d *Daemon) questions(id string) ([]approval.Recorded, error) {
	return d.entries(id, kind.KindApprovalOpened, kind.KindApprovalDecided)
}

// entries are those of a cell, of some kinds.
func (d *Daemon) entries(id string, kinds ...kind.Kind) (list []approval.Recorded, err error) {
	for e, err := range ledger.Read(filepath.Join(d.State, "ledger"), ledger.Filter{Cell: id, Kinds: kinds}) {
		var body kind.Body
		if err == nil {
			body, err = e.Decode()
		}
		if err != nil {
			return nil, fmt.Errorf("read what cell %s has asked: %w", id, err)
		}
		list = append(list, approval.Recorded{Time: e.Time, Body: body})
	}
	return list, nil
}
