package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/handover/bequest"
)

// pause is while calls of a driver wait.
type pause struct {
	over    chan struct{} // closed by Resume
	settled chan struct{} // closed when no call is under way
	silent  chan struct{} // closed when nobody reads any more
	quiet   bool          // settled is closed
}

// unpaused waits until calls may go on, and returns with the lock, or with an error.
func (d *Driver) unpaused(ctx context.Context) error {
	d.mu.Lock()
	for d.pause != nil {
		over := d.pause.over
		d.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return fmt.Errorf("wait for the worker: %w", ctx.Err())
		}
		d.mu.Lock()
	}
	return nil
}

// settle tells Pause that no call is under way. The caller has the lock.
func (d *Driver) settle() {
	if p := d.pause; p != nil && !p.quiet && len(d.waiting) == 0 {
		p.quiet = true
		close(p.settled)
	}
}

// fallSilent tells Pause that the reader has stopped.
func (d *Driver) fallSilent() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.pause.silent)
}

// Pause implements cell.Pauser: with the worker nothing is under way between two
// requests, so that whoever has the connection then goes on.
func (d *Driver) Pause(ctx context.Context) error {
	p := &pause{over: make(chan struct{}), settled: make(chan struct{}), silent: make(chan struct{})}
	d.mu.Lock()
	if d.pause != nil {
		d.mu.Unlock()
		return errors.New("the worker is being left already")
	}
	d.pause = p
	d.settle()
	d.mu.Unlock()
	err := stopReading(ctx, d.conn, p.settled, p.silent, d.gone)
	if err == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pause = nil
	close(p.over)
	return fmt.Errorf("pause what the worker is asked: %w", err)
}

// stopReading has the reader of a connection stop between two messages, after what is
// under way; gone is closed where there is nothing to read any more.
func stopReading(ctx context.Context, conn *os.File, settled, silent, gone <-chan struct{}) error {
	select {
	case <-settled:
	case <-gone:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return errors.Join(errGone, err)
	}
	select { // at once
	case <-silent:
		return conn.SetReadDeadline(time.Time{})
	case <-gone:
		return errGone
	}
}

var errGone = errors.New("it has ended")

// Resume implements cell.Pauser.
func (d *Driver) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pause == nil {
		return
	}
	close(d.pause.over)
	d.pause = nil
	go d.receive()
}

// LeaveWorker leaves the connection to the worker, for New.
func (d *Driver) LeaveWorker(e *bequest.Estate) bequest.FD { return e.Leave(d.conn) }

// leftCell is a running cell as it is left.
type leftCell struct {
	Warden   leftProcess   `json:"warden"`
	Control  bequest.FD    `json:"control"`
	Enforced cell.Enforced `json:"enforced"`
	View     *leftView     `json:"view,omitempty"`
}

type leftProcess struct {
	Pid   int        `json:"pid"`
	Pidfd bequest.FD `json:"pidfd"`
}

// Pause implements cell.Pauser: what the warden says from now on waits.
func (r *running) Pause(ctx context.Context) error {
	silent, settled := make(chan struct{}), make(chan struct{})
	close(settled)
	r.mu.Lock()
	r.silent = silent
	r.mu.Unlock()
	if err := stopReading(ctx, r.control, settled, silent, r.done); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.silent = nil
		return fmt.Errorf("pause cell %s: %w", r.id, err)
	}
	return nil
}

// Resume implements cell.Pauser.
func (r *running) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent != nil {
		r.silent = nil
		go r.follow()
	}
}

// Leave implements cell.Leaver.
func (r *running) Leave(e *bequest.Estate) (json.RawMessage, error) {
	return json.Marshal(leftCell{
		Warden: r.warden.left(e), Control: e.Leave(r.control), Enforced: r.enforced, View: r.driver.views.leave(r.id, e),
	})
}

func (p *process) left(e *bequest.Estate) leftProcess {
	return leftProcess{Pid: p.pid, Pidfd: e.Leave(p.pidfd)}
}

// Leave implements cell.Leaver.
func (p *process) Leave(e *bequest.Estate) (json.RawMessage, error) { return json.Marshal(p.left(e)) }

// InheritProcess implements cell.Inheritor.
func (d *Driver) InheritProcess(left json.RawMessage, h *bequest.Heir) (cell.Process, error) {
	var l leftProcess
	if err := json.Unmarshal(left, &l); err != nil {
		return nil, fmt.Errorf("read what was left of a process: %w", err)
	}
	return l.take(h)
}

func (l leftProcess) take(h *bequest.Heir) (*process, error) {
	pidfd := h.Need(l.Pidfd, "pidfd")
	if pidfd == nil {
		return nil, h.Err()
	}
	return newProcess(l.Pid, pidfd), nil
}

// InheritCell implements cell.Inheritor.
func (d *Driver) InheritCell(id string, left json.RawMessage, h *bequest.Heir) (cell.Running, error) {
	var l leftCell
	if err := json.Unmarshal(left, &l); err != nil {
		return nil, fmt.Errorf("read what was left of cell %s: %w", id, err)
	}
	control := h.Need(l.Control, "control")
	warden, err := l.Warden.take(h)
	if err != nil || control == nil {
		return nil, errors.Join(err, h.Err())
	}
	if l.View != nil {
		d.views.add(id, l.View.take(h), d.Usage)
	}
	r := newRunning(id, d, warden, control, l.Enforced)
	go r.follow()
	return r, nil
}

// leftView is what shows a cell its own size, as it is left.
type leftView struct {
	Limits  cell.Limits           `json:"limits"`
	Begin   time.Time             `json:"begin"`
	Load    [3]float64            `json:"load"`
	Usage   cell.Usage            `json:"usage"`
	Files   map[string]bequest.FD `json:"files"`
	Last    map[string]string     `json:"last"`
	Counted bool                  `json:"counted"`
}

func (s *views) leave(id string, e *bequest.Estate) *leftView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.open[id]
	if v == nil {
		return nil
	}
	l := &leftView{
		Limits: v.limits, Begin: v.begin, Load: v.load, Usage: v.usage, Counted: v.counted, Last: v.last, Files: map[string]bequest.FD{},
	}
	for name, f := range v.files {
		l.Files[name] = e.Leave(f)
	}
	return l
}

func (l *leftView) take(h *bequest.Heir) *view {
	v := &view{
		size:  size{limits: l.Limits, begin: l.Begin, load: l.Load, usage: l.Usage},
		files: map[string]*os.File{}, last: l.Last, counted: l.Counted, at: time.Now(),
	}
	for name, fd := range l.Files {
		if f := h.Need(fd, name); f != nil {
			v.files[name] = f
		}
	}
	return v
}
