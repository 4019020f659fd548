package boxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/handover/bequest"
)

// Left is the boundary of a cell as it is left to another skepd (L20a).
type Left struct {
	Boxes   []LeftBox `json:"boxes"` // the one that serves is the last
	Carried int64     `json:"carried,omitzero"`
}

// LeftBox is one box.
type LeftBox struct {
	Process  json.RawMessage `json:"process"`
	Conn     bequest.FD      `json:"conn"`
	Lifeline bequest.FD      `json:"lifeline"`
	Lent     int64           `json:"lent,omitzero"`   // carried of its leases, as it told last
	Leased   int64           `json:"leased,omitzero"` // all of its leases
}

// Moved is a boundary whose boxes wait on connections that nobody serves.
type Moved struct {
	of    *Boundary
	boxes []*Box
	conns []*os.File
}

// Move has every box leave its connection for one that waits, until Resume, here or by
// the skepd that it is left to. After an error all go on.
func (a *Boundary) Move(ctx context.Context) (*Moved, error) {
	a.swap.Lock()
	m := &Moved{of: a, boxes: a.All()}
	m.conns = make([]*os.File, len(m.boxes))
	errs := make([]error, len(m.boxes))
	var moves sync.WaitGroup
	for i, b := range m.boxes {
		moves.Go(func() { m.conns[i], errs[i] = b.Link.Move(ctx) })
	}
	moves.Wait()
	if err := errors.Join(errs...); err != nil {
		m.Resume()
		return nil, err
	}
	return m, nil
}

// Resume serves the boxes again.
func (m *Moved) Resume() {
	for i, b := range m.boxes {
		if m.conns[i] != nil {
			_ = b.Link.Resume(m.conns[i]) // a box that cannot be served has gone, and is seen
		}
	}
	m.of.swap.Unlock()
}

// AllMoved are the boundaries of several cells.
type AllMoved []*Moved

// MoveAll moves them side by side. After an error all go on.
func MoveAll(ctx context.Context, all []*Boundary) (AllMoved, error) {
	moved, errs := make(AllMoved, len(all)), make([]error, len(all))
	var moves sync.WaitGroup
	for i, b := range all {
		moves.Go(func() { moved[i], errs[i] = b.Move(ctx) })
	}
	moves.Wait()
	if err := errors.Join(errs...); err != nil {
		moved.Resume()
		return nil, err
	}
	return moved, nil
}

// Resume serves the boxes of all again.
func (m AllMoved) Resume() {
	for _, one := range m {
		if one != nil {
			one.Resume()
		}
	}
}

// Leave describes the boundary.
func (m *Moved) Leave(e *bequest.Estate) (Left, error) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	l := Left{Carried: m.of.carried}
	for i, b := range m.boxes {
		p, ok := b.Process.(cell.Leaver)
		if !ok {
			return l, errors.New("the driver's processes cannot be left to another skepd")
		}
		process, err := p.Leave(e)
		if err != nil {
			return l, err
		}
		l.Boxes = append(l.Boxes, LeftBox{
			Process: process, Conn: e.Leave(m.conns[i]), Lifeline: e.Leave(b.Link.Lifeline()), Lent: m.of.lent[b], Leased: m.of.leased[b],
		})
	}
	return l, nil
}

// Heir is what is needed to go on with boxes of a cell.
type Heir struct {
	*bequest.Heir
	Driver   cell.Inheritor
	Cell     string
	Names    *skepv1.ResolverUpdate
	Recorder func(*Box) boxlink.Recorder
}

// Inherit goes on with the boxes that another skepd left.
func (a *Boundary) Inherit(l Left, h Heir) error {
	if len(l.Boxes) == 0 {
		return errors.New("the cell was left without a box")
	}
	a.mu.Lock()
	a.carried, a.lent, a.leased = l.Carried, map[*Box]int64{}, map[*Box]int64{}
	for i, left := range l.Boxes {
		b := &Box{}
		a.lent[b], a.leased[b] = left.Lent, left.Leased
		if i < len(l.Boxes)-1 {
			a.before = append(a.before, b)
		} else {
			a.now = b
		}
	}
	a.mu.Unlock()
	for i, b := range a.All() {
		left := l.Boxes[i]
		var err error
		if b.Process, err = h.Driver.InheritProcess(left.Process, h.Heir); err != nil {
			return err
		}
		moved := boxlink.Moved{
			Conn: h.Need(left.Conn, "box"), Lifeline: h.Need(left.Lifeline, "lifeline"), Cell: h.Cell, Names: h.Names, Recorder: h.Recorder(b),
		}
		if err := h.Err(); err != nil {
			return err
		}
		if b.Link, err = boxlink.Resume(moved); err != nil {
			return fmt.Errorf("go on with a box: %w", err)
		}
	}
	return nil
}

// Rest ends the spare box, and makes none until Wake.
func (s *Pool) Rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting = true
	if s.ready != nil {
		s.ready.Kill()
		s.ready = nil
	}
}

// Wake makes spare boxes again.
func (s *Pool) Wake() {
	s.mu.Lock()
	s.resting = false
	s.mu.Unlock()
	s.Fill()
}
