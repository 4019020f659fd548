package approvals

import (
	"fmt"
	"slices"
	"strings"

	"skep.dev/skep/internal/approval"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
)

// Recover makes up for a crash between an answer's entry and its line, for a cell that an
// earlier skepd left.
func (a *Approvals) Recover(r cells.Record) error {
	entries, err := a.questions(r.ID)
	if err != nil || len(entries) == 0 {
		return err
	}
	return a.recover(r, entries)
}

// Replay makes the cards of a cell that another skepd left to us (B142).
func (a *Approvals) Replay(r cells.Record) error {
	entries, err := a.questions(r.ID)
	if err != nil || len(entries) == 0 {
		return err
	}
	used, err := a.entries(r.ID, kind.KindFlowIntent) // of answers for one flow
	if err != nil {
		return err
	}
	return a.Machine.Replay(r.ID, r.UID, append(entries, used...))
}

func (a *Approvals) questions(cell string) ([]approval.Recorded, error) {
	return a.entries(cell, kind.KindApprovalOpened, kind.KindApprovalDecided)
}

// entries are those of a cell, of some kinds.
func (a *Approvals) entries(cell string, kinds ...kind.Kind) (list []approval.Recorded, err error) {
	for e, err := range ledger.Read(a.Ledger, ledger.Filter{Cell: cell, Kinds: kinds}) {
		var body kind.Body
		if err == nil {
			body, err = e.Decode()
		}
		if err != nil {
			return nil, fmt.Errorf("read what cell %s has asked: %w", cell, err)
		}
		list = append(list, approval.Recorded{Time: e.Time, Body: body})
	}
	return list, nil
}

func (a *Approvals) recover(r cells.Record, entries []approval.Recorded) error {
	m := &approval.Machine{Journal: a.Journal, Clock: a.Machine.Clock}
	if err := m.Replay(r.ID, r.UID, entries); err != nil {
		return err
	}
	taken := map[string]bool{}
	for _, e := range entries {
		if b, ok := e.Body.(*kind.ApprovalDecided); ok && b.Reason == Revoked {
			_, id, _ := strings.Cut(b.Proposal, " ")
			taken[id] = true
		}
	}
	cards := slices.DeleteFunc(m.List(r.ID), func(c approval.Card) bool {
		return c.State != approval.Approved || c.Scope != approval.Always || taken[c.ID]
	})
	for _, c := range cards {
		if err := a.Standing.Add(said(r, c)); err != nil {
			return err
		}
	}
	m.Forget(r.ID)
	return nil
}
