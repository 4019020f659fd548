package daemon

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/counting"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/daemon/keys"
	"skep.dev/skep/internal/daemon/measure"
	"skep.dev/skep/internal/daemon/secrets"
	"skep.dev/skep/internal/daemon/traffic"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/sys"
)

// life is one cell that has not ended.
type life struct {
	d          *Daemon
	id         string
	begin      time.Time
	profile    *profile.Profile
	unenforced []string   // keys of the budget that nothing holds here
	held       []*os.File // the granted roots, for a difference while the cell runs
	traffic    *traffic.Cell
	counted    counting.Cell
	secrets    *secrets.Cell // nil where it has none
	kept       func() error  // returns once the first record is durable

	spec        *cell.Spec   // what the driver is to build
	unfurnished error        // why it cannot be
	endBox      func() error // lets the box write what is left, once

	boundary boxes.Boundary
	keys     *keys.Relay // nil: none
	swapping sync.Mutex  // around each change of the boxes' policy

	mu      sync.Mutex
	running cell.Running
	cause   cells.Cause       // the first reason to end it
	stops   map[string]func() // timers, the last of each purpose
	changed chan struct{}
	disk    *measure.Gauge
	notices []string // for the caller, who named a profile
	closing bool     // no timer is armed any more
	over    bool     // its end is recorded
}

func (d *Daemon) newLife(id string, begin time.Time, p *profile.Profile, unenforced []string) *life {
	d.Metrics.Attached(1) // a native cell has one generation
	return &life{
		d: d, counted: counting.Cell{Counts: d.Metrics}, id: id, begin: begin, profile: p, unenforced: unenforced, stops: map[string]func(){}, changed: make(chan struct{}),
	}
}

// attend lets the box write what is left as soon as the last process has gone.
func (l *life) attend(r cell.Running) {
	l.endBox = sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		return l.boundary.End(ctx)
	})
	l.boundary.Attend(r.Done(), func(finished bool) { l.outlived(r, finished) }, l.returned)
	go func() {
		<-r.Done()
		_ = l.endBox()
	}()
}

// recordUse makes durable how a key of the owner's agent is used.
func (l *life) recordUse(b kind.Body) error { return l.d.record.Append(l.id, b) }

// watch returns a channel that is closed at the next change.
func (l *life) watch() (changed <-chan struct{}, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed, l.over
}

func (l *life) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// conclude tells everyone that the end is recorded.
func (l *life) conclude() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.d.forget(l)
	l.tell()
}

// end ends the cell at once for a cause, if no other came before.
func (l *life) end(c cells.Cause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause.Word == "" {
		l.cause = c
	}
	if l.running != nil {
		_ = l.running.Kill()
	}
}

// reason is why the cell was ended, or else what became of it by itself.
func (l *life) reason(otherwise cells.Cause) cells.Cause {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause.Word != "" {
		return l.cause
	}
	return otherwise
}

// ask signals the agent, and ends the cell if it has not ended after grace.
func (l *life) ask(grace time.Duration, c cells.Cause) {
	l.mu.Lock()
	if l.cause.Word == "" {
		l.cause = c
	}
	r := l.running
	if r != nil {
		// Each keeps its own: a later, longer grace does not lengthen an earlier one.
		l.stops["grace "+strconv.Itoa(len(l.stops))] = l.d.Clock.AfterFunc(grace, func() { _ = r.Kill() })
	}
	l.mu.Unlock()
	if r != nil {
		_ = r.Signal(int(syscall.SIGTERM))
		_ = r.Signal(int(syscall.SIGCONT))
	}
}

// after does something later, unless the cell has ended before. what is its purpose:
// one timer of each is kept.
func (l *life) after(what string, d time.Duration, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closing {
		l.stops[what] = l.d.Clock.AfterFunc(d, f)
	}
}

// cell is what the driver runs, nil before it does.
func (l *life) cell() cell.Running {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// note keeps a line for the caller of the run.
func (l *life) note(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notices = append(l.notices, line)
}

func (l *life) noted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.notices
	l.notices = nil
	return lines
}

// started takes the running cell. A reason to end it that came before is obeyed.
func (l *life) started(r cell.Running) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = r
	if l.cause.Word != "" {
		_ = r.Kill()
	}
}

// follow waits for the end of the cell and records it. Nobody hears of the end
// before it is durable.
func (l *life) follow() {
	r := l.running
	<-r.Done()
	if l.boundary.Died() && !errors.Is(r.Result().Failed, cell.ErrWarden) { // what its agent did about that was quicker
		l.end(cells.Cause{Word: "boundary-died", Detail: "its box ended"})
	}
	l.finish(r.Result())
}

// returned gives the cell's budget back what a box leaves of its leases.
func (l *life) returned(carried, back int64) {
	if err := l.d.bytes.Return(l.id, carried, back); err != nil {
		l.d.Log.Error("what a box leaves of its leases counts as spent until the cell ends", "cell", l.id, "err", err)
	}
}

// outlived ends a cell whose box has gone. A box that has written all that was left
// ended with its cell's warden: the cell is ending by itself. Any other died, and what
// its agent does about that is no end of its own.
func (l *life) outlived(r cell.Running, finished bool) {
	if !finished {
		l.end(cells.Cause{Word: "boundary-died", Detail: "its box ended"})
		return
	}
	l.lost(r, "its box ended")
}

// lost ends a cell that has no box any more, unless it is ending by itself: boxes end with
// the warden.
func (l *life) lost(r cell.Running, how string) {
	late := make(chan struct{})
	stop := l.d.Clock.AfterFunc(boxGrace, func() { close(late) })
	defer stop()
	select {
	case <-r.Done():
	case <-late:
		l.end(cells.Cause{Word: "boundary-died", Detail: how})
	}
}

// boxGrace is between the end of a box and that of its warden, which is the same
// event where the cell ends in order.
const boxGrace = time.Second

// endTime bounds what box and gateway may take to write what is left. A box takes
// 8 s at most (B150).
const endTime = 10 * time.Second

// finish closes the box after it has written what was left, and records the end. What
// nobody waits for comes after that.
func (l *life) finish(result cell.Result) {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	var over cells.Cause
	var beside sync.WaitGroup
	beside.Go(func() {
		over = l.disk.Over(l.d.ctx) // too quick a cell was never measured
		if result.Left == nil {
			l.d.removeRun(l.id)
		} else {
			l.d.Log.Warn("something of a cell is left until the next start", "cell", l.id, "err", result.Left)
		}
	})
	err := l.endBox()
	l.boundary.Kill()
	l.keys.Close()
	if err != nil {
		l.d.Log.Warn("the box did not finish", "cell", l.id, "err", err)
	}
	l.d.endModel(ctx, l)
	l.d.asked.Withdraw(l.id)
	spent := l.d.collect(l)
	l.mu.Lock()
	cause := l.cause
	l.closing = true
	for _, stop := range l.stops {
		stop()
	}
	l.mu.Unlock()
	sys.CloseAll(l.held)
	l.secrets.Close()
	beside.Wait()
	switch {
	case cause.Word == "":
		cause = over
	case cause.Budget == "net": // which was ended at what it was lent
		cause.Peak = spent
	}
	code, cause := ending.Judge(l.profile, result, cause)
	written := l.d.record.Due(l.id)
	l.d.book.Settle(l.id, l.begin, code, cause, cells.Stopped)
	l.conclude()
	l.part()
	l.d.book.Keep(l.id)
	written()
	l.d.boxes.Fill()
	l.d.work.End()
}

// partingTime is what the caller's program has to itself when it has been told of the
// end: a seal takes a processor for some milliseconds, and a person waits for the prompt.
const partingTime = 20 * time.Millisecond

// part waits until whoever ran the cell has gone his way, or skepd ends.
func (l *life) part() {
	over := make(chan struct{})
	stop := l.d.Clock.AfterFunc(partingTime, func() { close(over) })
	defer stop()
	select {
	case <-over:
	case <-l.d.ctx.Done():
	}
}

// clear removes what the host keeps for a cell whose processes are gone, and then
// its run directory: while that stands, something may be left.
func (d *Daemon) clear(id string) {
	if s, ok := d.Driver.(cell.Sweeper); ok {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), 5*time.Second)
		defer cancel()
		if err := s.Sweep(ctx, id); err != nil {
			d.Log.Warn("something of a cell is left until the next start", "cell", id, "err", err)
			return
		}
	}
	d.removeRun(id)
}

// forget takes a cell out of the ones that live. Whoever has still to write of it says
// so in d.work.
func (d *Daemon) forget(l *life) {
	d.mu.Lock()
	delete(d.live, l.id)
	d.mu.Unlock()
	l.traffic.End()
	l.counted.End()
	d.idle.Touch(0)
}

// endAllTime is for all cells together: what a deaf warden takes, then its box. What
// has not ended by then is ended and recorded by the next skepd (L20).
const endAllTime = 25 * time.Second

// endAll ends every cell because the daemon ends.
func (d *Daemon) endAll(why cells.Cause) {
	d.mu.Lock()
	d.ending = true
	d.mu.Unlock()
	for _, l := range d.lives() {
		l.end(why)
	}
	d.stop() // what is half built is given up
	ended, late := make(chan struct{}), make(chan struct{})
	go func() {
		d.work.Wait()
		close(ended)
	}()
	stop := d.Clock.AfterFunc(endAllTime, func() { close(late) })
	defer stop()
	select {
	case <-ended:
	case <-late:
		d.Log.Error("not every cell has ended in time: the next skepd ends and records the others")
	}
}

// lives are all cells that live now.
func (d *Daemon) lives() []*life {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.live))
}

// lifeOf is the cell while it lives.
func (d *Daemon) lifeOf(id string) *life {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live[id]
}

// heldRoots are duplicates of a running cell's granted roots; none for another.
func (d *Daemon) heldRoots(id string) (*handover.Bundle, error) {
	b := &handover.Bundle{}
	l := d.lifeOf(id)
	if l == nil {
		return b, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return b, nil
	}
	for _, f := range l.held {
		at, ok := sys.PathOf(f)
		if !ok {
			continue
		}
		dup, err := sys.Duplicate(f)
		if err != nil {
			b.Close()
			return nil, err
		}
		b.Roles = append(b.Roles, handover.Role{Role: handover.RolePath, Path: at})
		b.Files = append(b.Files, dup)
	}
	return b, nil
}

// later does what nobody waits for but our own end.
func (d *Daemon) later(do func()) {
	d.mu.Lock()
	ending := d.ending
	if !ending {
		d.work.Begin()
	}
	d.mu.Unlock()
	if ending {
		do()
		return
	}
	go func() {
		defer d.work.End()
		do()
	}()
}

// removeLayer is for where nothing can be done about a failure: what is left is
// tried again at the next start.
func (d *Daemon) removeLayer(id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), time.Minute)
	defer cancel()
	if err := d.changes.DropLayer(ctx, id); err != nil {
		d.Log.Warn("the layer of a cell is left", "cell", id, "err", err)
	}
}
