package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/idle"
	"skep.dev/skep/internal/daemon/left"
	"skep.dev/skep/internal/daemon/models"
	"skep.dev/skep/internal/handover/bequest"
	"skep.dev/skep/internal/ledger"
)

// Successor is the program that may take this one's place.
type Successor struct {
	Program string
	Args    []string // without what is left
	// Try tells, beforehand, whether it could.
	Try func(context.Context) error
}

// How long a replacement waits: for what begins and ends by itself, and then, while boxes
// wait for us, for the rest; their own patience is 2 s (B150).
const (
	quietTime = 6 * time.Second
	leaveTime = 3 * time.Second
)

// succeed has the program that stands at skepd's path now take our place, with all that
// we hold. It returns only if it could not, and then everything goes on as before.
func (d *Daemon) succeed(ctx context.Context) (err error) {
	pauser, ok := d.Driver.(cell.Pauser)
	if d.Successor == nil || !ok {
		return errors.New("this skepd cannot be replaced")
	}
	if err := d.Successor.Try(ctx); err != nil {
		return err
	}
	quiet, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	// Before the door is shut: a merge ends by a call.
	if err := idle.Until(quiet, func() (string, error) { return d.changes.Busy(), nil }); err != nil {
		return err
	}
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}()
	step := func(do func() error, back func()) {
		if err == nil {
			if err = do(); err == nil {
				undo = append(undo, back)
			}
		}
	}
	undo = append(undo, d.reopen)
	if err = d.door.Shut(quiet, 1); err != nil { // the one is who asks for this
		return err
	}
	d.boxes.Rest()
	undo = append(undo, d.boxes.Wake)
	lives, resume, err := d.pauseCells(quiet)
	undo = append(undo, resume)
	leaving, stop := context.WithTimeout(ctx, leaveTime)
	defer stop()
	step(func() error { return pauser.Pause(leaving) }, pauser.Resume)
	step(func() error { return d.keepAll(lives) }, func() {})
	var moved boxes.AllMoved
	step(func() (err error) { moved, err = boxes.MoveAll(leaving, boundaries(lives)); return err }, func() { moved.Resume() })
	step(func() error { return pauseKeys(leaving, lives) }, func() { resumeKeys(lives) })
	step(func() error { return freeze(lives) }, func() { thaw(lives) })
	m, heritable := d.models.(models.Heritable)
	if heritable {
		step(func() error { return m.Pause(leaving) }, m.Resume)
	}
	step(d.ledger.Close, d.againLedger)
	step(func() error { return d.execute(lives, moved) }, func() {})
	return err
}

func (d *Daemon) reopen() {
	if err := d.door.Open(); err != nil {
		d.Log.Error("nobody can call any more: skepd ends", "err", err)
		d.stop()
	}
}

// pauseCells waits until no cell begins or ends, and then hears no cell any more.
func (d *Daemon) pauseCells(ctx context.Context) (lives []*life, resume func(), err error) {
	var paused []cell.Pauser
	resume = func() {
		for _, p := range paused {
			p.Resume()
		}
		paused = nil
	}
	err = idle.Until(ctx, func() (busy string, err error) {
		if lives, busy = d.steady(); busy != "" {
			return busy, nil
		}
		for _, l := range lives {
			p, ok := l.cell().(cell.Pauser)
			if !ok {
				return "", errors.New("the driver's cells cannot be left to another skepd")
			}
			if err := p.Pause(ctx); err != nil {
				resume()
				return "cell " + l.id + " ends", nil
			}
			paused = append(paused, p)
		}
		return "", nil
	})
	return lives, resume, err
}

// steady are the running cells, if no other is there; else what goes on.
func (d *Daemon) steady() (lives []*life, busy string) {
	lives = d.lives()
	for _, l := range lives {
		l.mu.Lock()
		runs, cause := l.running != nil && !l.closing && !l.over, l.cause
		l.mu.Unlock()
		switch {
		case !runs:
			return nil, "cell " + l.id + " starts or ends"
		case cause.Word != "":
			return nil, "cell " + l.id + " is being ended (" + cause.String() + ")"
		}
	}
	if d.work.Count() != len(lives) {
		return nil, "the end of a cell is being written"
	}
	return lives, d.changes.Busy()
}

// keepAll writes the records of cells as they are told.
func (d *Daemon) keepAll(lives []*life) error {
	for _, l := range lives {
		if err := d.cells.Keep(l.id); err != nil {
			return fmt.Errorf("keep what is told of the cells: %w", err)
		}
	}
	if err := d.guests.Keep(); err != nil {
		return err
	}
	return d.cells.Kept()
}

func boundaries(lives []*life) (all []*boxes.Boundary) {
	for _, l := range lives {
		all = append(all, &l.boundary)
	}
	return all
}

// pauseKeys has what relays of keys ask wait.
func pauseKeys(ctx context.Context, lives []*life) error {
	for i, l := range lives {
		if err := l.keys.Pause(ctx); err != nil {
			resumeKeys(lives[:i])
			return err
		}
	}
	return nil
}

func resumeKeys(lives []*life) {
	for _, l := range lives {
		l.keys.Resume()
	}
}

// freeze keeps every timer and every death from ending a cell here: our successor sees
// for itself.
func freeze(lives []*life) error {
	for i, l := range lives {
		l.mu.Lock()
		if l.cause.Word != "" {
			thaw(lives[:i+1])
			return fmt.Errorf("cell %s is being ended (%s): try again", l.id, l.cause)
		}
	}
	return nil
}

func thaw(lives []*life) {
	for _, l := range lives {
		l.mu.Unlock()
	}
}

// againLedger opens the ledger again that was closed for a successor.
func (d *Daemon) againLedger() {
	l, err := ledger.Open(filepath.Join(d.State, "ledger"), d.ledgerOptions())
	if err != nil {
		d.Log.Error("the record cannot be written any more: skepd ends", "err", err)
		d.stop()
		return
	}
	d.ledger, d.record.Ledger, d.reading.Ledger = l, l, l
}

// execute describes everything, and hands it over.
func (d *Daemon) execute(lives []*life, moved boxes.AllMoved) error {
	if d.ctx.Err() != nil {
		return errors.New("skepd is being stopped")
	}
	e := &bequest.Estate{}
	state := left.State{
		Build: d.ours().String(), Lock: e.Leave(d.lock), API: e.Leave(d.door.API), FDs: e.Leave(d.door.FDs),
		Tickets: d.desk.Waiting(e), Bytes: d.bytes.Leave(),
	}
	if m, ok := d.models.(models.Heritable); ok {
		l := m.Leave(e)
		state.Models = &l
	}
	args := slices.Clone(d.Successor.Args)
	if w, ok := d.Driver.(interface {
		LeaveWorker(e *bequest.Estate) bequest.FD
	}); ok {
		args = append(args, "--worker-fd", fmt.Sprint(w.LeaveWorker(e)))
	}
	for i, l := range lives {
		c := left.Cell{ID: l.id, Begin: l.begin, Flows: l.traffic.Leave(), Asked: len(d.asked.Machine.List(l.id)) > 0, Notices: l.notices, Secrets: l.secrets.Leave(e)}
		for _, f := range l.held {
			c.Held = append(c.Held, e.Leave(f))
		}
		r, ok := l.running.(cell.Leaver)
		if !ok {
			return errors.New("the driver's cells cannot be left to another skepd")
		}
		var err error
		if c.Running, err = r.Leave(e); err != nil {
			return err
		}
		if c.Boundary, err = moved[i].Leave(e); err != nil {
			return err
		}
		if c.Keys, err = l.keys.Leave(e); err != nil {
			return err
		}
		state.Cells = append(state.Cells, c)
	}
	d.Log.Info("another skepd takes the place", "program", d.Successor.Program, "cells", len(lives))
	return e.Execute(d.Successor.Program, args, os.Environ(), left.Version, state)
}
