package daemon

import (
	"errors"
	"fmt"
	"sync"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/keys"
	"skep.dev/skep/internal/daemon/left"
	"skep.dev/skep/internal/daemon/models"
	"skep.dev/skep/internal/daemon/secrets"
	"skep.dev/skep/internal/handover/bequest"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/profile"
)

// inherit goes on with the cells that another skepd left. Each is there as if we had
// started it: what is to end it by time is armed from its own begin.
func (d *Daemon) inherit(s *left.State, h *bequest.Heir) error {
	driver, ok := d.Driver.(cell.Inheritor)
	if !ok {
		return errors.New("the driver cannot go on with cells of another skepd")
	}
	if m, ok := d.models.(models.Heritable); ok && s.Models != nil {
		m.Inherit(*s.Models, h)
	}
	if err := d.desk.Inherit(s.Tickets, h); err != nil {
		return err
	}
	for i := range s.Cells {
		if err := d.inheritCell(&s.Cells[i], driver, h); err != nil {
			return fmt.Errorf("go on with cell %s: %w", s.Cells[i].ID, err)
		}
	}
	d.noteAll(fmt.Sprintf("skepd %s took the place of %s under the running cell", d.ours(), s.Build))
	return h.Err()
}

func (d *Daemon) inheritCell(c *left.Cell, driver cell.Inheritor, h *bequest.Heir) error {
	r, ok := d.cells.Get(c.ID)
	if !ok || r.State != cells.Running {
		return fmt.Errorf("its record says that it is %q", r.State)
	}
	p, faults := profile.ParseAt(r.ProfileName, profile.Place{Dir: "/"}, []byte(r.Profile))
	if faults != nil {
		return fmt.Errorf("read its profile again: %w", faults)
	}
	if p.Digest() != r.ProfileDigest {
		return errors.New("its profile is not what it was")
	}
	l := d.newLife(c.ID, c.Begin, p, r.Unenforced)
	l.traffic, l.notices, l.kept = d.owners.Inherit(r.UID, c.Flows), c.Notices, func() error { return nil }
	var err error
	if l.secrets, err = secrets.Inherit(p.Secrets, c.Secrets, h); err != nil {
		return err
	}
	if c.Asked { // else nothing is read: boxes wait
		if err := d.asked.Replay(r); err != nil {
			return err
		}
	}
	for _, fd := range c.Held {
		l.held = append(l.held, h.Need(fd, "granted"))
	}
	if err := h.Err(); err != nil {
		return err
	}
	l.disk = d.gauge(l, false)
	if l.running, err = driver.InheritCell(c.ID, c.Running, h); err != nil {
		return err
	}
	if l.keys, err = keys.Inherit(c.Keys, d.house.Keys(c.ID), driver, h, l.recordUse); err != nil {
		return err
	}
	d.mu.Lock()
	d.live[c.ID] = l
	d.work.Begin()
	d.mu.Unlock()
	err = l.boundary.Inherit(c.Boundary, boxes.Heir{
		Heir: h, Driver: driver, Cell: c.ID, Names: d.names.Current(),
		Recorder: func(b *boxes.Box) boxlink.Recorder { return recorder{d, l, b} },
	})
	if err != nil {
		return err
	}
	l.attend(l.running)
	d.limit(l, r.Started)
	d.watchSecrets(l)
	go l.follow()
	return nil
}

// noteAll has the ledger of every running cell say what was replaced under it.
func (d *Daemon) noteAll(text string) {
	var notes sync.WaitGroup
	for _, l := range d.lives() {
		notes.Go(func() { d.note(l, text) })
	}
	notes.Wait()
}

func (d *Daemon) note(l *life, text string) {
	if err := d.noted(l.id, text); err != nil {
		d.Log.Error("a replacement was not recorded", "cell", l.id, "err", err)
	}
}

func (d *Daemon) noted(id, text string) error {
	return d.record.Append(id, &kind.Note{By: "skepd", Text: kind.Bytes(text)})
}
