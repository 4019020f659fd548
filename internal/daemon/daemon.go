package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/admit"
	"skep.dev/skep/internal/daemon/advice"
	"skep.dev/skep/internal/daemon/allowance"
	"skep.dev/skep/internal/daemon/approvals"
	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/changes"
	"skep.dev/skep/internal/daemon/clocks"
	"skep.dev/skep/internal/daemon/connector/metrics"
	"skep.dev/skep/internal/daemon/doctor"
	"skep.dev/skep/internal/daemon/door"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/daemon/furniture"
	"skep.dev/skep/internal/daemon/guests"
	"skep.dev/skep/internal/daemon/idle"
	"skep.dev/skep/internal/daemon/left"
	"skep.dev/skep/internal/daemon/measure"
	"skep.dev/skep/internal/daemon/orphans"
	"skep.dev/skep/internal/daemon/reading"
	"skep.dev/skep/internal/daemon/recording"
	"skep.dev/skep/internal/daemon/resolvers"
	"skep.dev/skep/internal/daemon/selftest"
	"skep.dev/skep/internal/daemon/statelock"
	"skep.dev/skep/internal/daemon/traffic"
	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/handover/bequest"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/sys"
)

// Config is what a daemon is made of.
type Config struct {
	State, Run string   // 0700 directories of this user
	Hidden     []string // directories of Skep's own that no cell may see (L8b)
	Driver     cell.Driver
	Clock      clocks.Clock
	Log        *slog.Logger
	Version    string
	Commit     string
	// Owners are the uids that may call, by the kernel's word.
	Owners []uint32
	// Auto ends the daemon after ten idle minutes: it was started by need.
	Auto bool
	// LockWait is how long a daemon that is just ending is waited for.
	LockWait time.Duration
	// Orphan ends a cell that an earlier daemon left, by its warden's socket. It
	// returns once no process of the cell is left, and says whether there was one.
	Orphan func(ctx context.Context, socket string) (was bool, err error)
	// Walls keeps the proof of this host's walls, and Prover is the program that makes
	// it in a cell (L10). Without them no cell is built.
	Walls  selftest.Walls
	Prover string
	// Models makes the gateway, given what records its calls and what has the cells served
	// again after it died; nil where there is none.
	Models func(record func(ctx context.Context, cell string, body kind.Body) error, lost func(context.Context) error) Models
	// Ceiling reads the operator's ceiling anew.
	Ceiling func() (policy.Ceiling, error)
	// Metrics counts what cells do; nil counts nothing (B200).
	Metrics *metrics.Counts
	// Settings judges the operator's files for skep doctor; nil judges none.
	Settings func() []doctor.Finding
	// Names are the files that are watched for the boxes (B101).
	Names resolvers.Files
	// Successor is what may take our place under running cells; nil: nothing.
	Successor *Successor
	// Fault says why we could not go on with the cells of whose place we took.
	Fault string
}

// Daemon is one skepd.
type Daemon struct {
	Config
	lock     *os.File
	ledger   *ledger.Ledger
	record   *recording.Record
	cells    *cells.Store
	house    *furniture.House
	book     *ending.Book
	guests   *guests.Guests
	desk     *handover.Desk
	door     *door.Door
	boxes    *boxes.Pool
	reading  *reading.Reading
	names    *resolvers.Watcher
	idle     *idle.Watch
	changes  *changes.Changes
	admit    *admit.Rules
	advice   *advice.Advice
	models   Models
	bytes    *allowance.Accounts
	owners   traffic.Owners
	asked    *approvals.Approvals
	feature  cell.Features
	instance string
	api, fds *os.File // listening sockets, once they are there

	ctx  context.Context // ends with the daemon, not with a request
	stop context.CancelFunc

	mu     sync.Mutex
	live   map[string]*life
	work   idle.Tally
	ending bool // no cell is declared any more
}

// Open takes the state directory for this daemon, and ends and records what an
// earlier one left behind. A second daemon on it is refused (D10).
func Open(ctx context.Context, c Config) (*Daemon, error) { return open(ctx, c, nil, nil) }

// Inherit is Open in the place of another skepd, with what it left: its cells go on.
func Inherit(ctx context.Context, c Config, inherited *left.State, h *bequest.Heir) (*Daemon, error) {
	return open(ctx, c, inherited, h)
}

// open is the one way in which a daemon begins; inherited is nil where it takes no place.
func open(ctx context.Context, c Config, inherited *left.State, h *bequest.Heir) (_ *Daemon, err error) {
	d := &Daemon{Config: c, live: map[string]*life{}, owners: traffic.Owners{PerCell: limit.OpenFlows}}
	d.ctx, d.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			d.stop()
			err = errors.Join(err, d.release())
		}
	}()
	d.instance = cells.NewID()
	if inherited != nil {
		d.lock, d.api, d.fds = h.Need(inherited.Lock, "lock"), h.Need(inherited.API, "api.sock"), h.Need(inherited.FDs, "fd.sock")
		err = h.Err()
	} else {
		d.lock, err = statelock.Take(filepath.Join(c.State, "lock"), c.LockWait)
	}
	if err != nil {
		return nil, err
	}
	if d.feature, err = c.Driver.Features(ctx); err != nil {
		return nil, fmt.Errorf("ask the worker what this host offers: %w", err)
	}
	if d.ledger, err = ledger.Open(filepath.Join(c.State, "ledger"), d.ledgerOptions()); err != nil {
		return nil, err
	}
	d.record = &recording.Record{Ledger: d.ledger, Dir: filepath.Join(c.State, "ledger"), Log: c.Log}
	var rests []string
	if d.cells, rests, err = cells.Open(filepath.Join(c.State, "cells")); err != nil {
		return nil, err
	}
	d.house = &furniture.House{State: c.State, Run: c.Run, Cells: d.cells}
	d.book = &ending.Book{
		Append: d.record.Append, Seal: func(id string) error { return d.ledger.EndCell(id) }, Cells: d.cells, Now: c.Clock.Now, Log: c.Log,
		Changed: func(id string) int64 { return measure.Changed(d.house.Layer(id)) },
	}
	d.guests = guests.New(guests.House{
		Cells: d.cells, Ledger: func() guests.Ledger { return d.ledger }, Clock: c.Clock, Log: c.Log, Again: door.ErrAgain,
		Leaving: func() <-chan struct{} { return d.door.Leaving() }, Recorded: ending.Of(filepath.Join(c.State, "ledger")),
	})
	if d.asked, err = d.approvals(); err != nil {
		return nil, err
	}
	d.desk = handover.NewDesk(c.Clock, c.Owners...)
	d.reading = &reading.Reading{
		Ledger: d.ledger, Dir: filepath.Join(c.State, "ledger"), Cells: d.cells, Clock: c.Clock,
		Lives: func(id string) bool { return d.lifeOf(id) != nil }, Ceiling: c.Ceiling,
		Own: func() []netip.Addr { return d.names.Own() }, Leaving: func() <-chan struct{} { return d.door.Leaving() }, Again: door.ErrAgain,
	}
	d.bytes = allowance.New(d.record.Append)
	if inherited != nil {
		if d.bytes, err = allowance.Inherit(d.record.Append, inherited.Bytes); err != nil {
			return nil, err
		}
	}
	d.admit = &admit.Rules{Desk: d.desk, Limits: d.feature.Limits, Own: append([]string{c.State, c.Run}, c.Hidden...)}
	d.advice = &advice.Advice{
		Driver: c.Driver, Limits: d.feature.Limits, Ceiling: c.Ceiling, Own: d.reading.Own, Proved: d.proved, Settings: c.Settings,
	}
	d.changes = &changes.Changes{
		Layers: c.Driver, Desk: d.desk, Cells: d.cells, Record: d.record, Held: d.heldRoots, Later: d.later, Log: c.Log,
	}
	if c.Models != nil {
		d.models = c.Models(d.RecordModel, d.modelsAgain)
	}
	begun := make(chan struct{})
	defer close(begun)
	push := func(u *skepv1.ResolverUpdate) {
		<-begun
		d.pushResolvers(u)
	}
	if d.names, err = resolvers.Watch(c.Clock, c.Names, push); err != nil {
		return nil, err
	}
	d.boxes = &boxes.Pool{Driver: c.Driver, Log: c.Log}
	if inherited != nil { // first, since boxes wait
		err = d.inherit(inherited, h)
	}
	if err == nil {
		err = d.reconcile(ctx, rests)
	}
	if err == nil {
		err = d.guests.Reconcile(inherited != nil)
	}
	if err != nil {
		d.names.Close()
		return nil, err
	}
	d.boxes.Fill()
	d.idle = idle.New(c.Clock, c.Auto, d.busy, d.stop)
	return d, nil
}

// reconcile ends what an earlier skepd left, and is not ours to go on with.
func (d *Daemon) reconcile(ctx context.Context, rests []string) error {
	if err := os.RemoveAll(filepath.Join(d.State, proofDir)); err != nil {
		return fmt.Errorf("remove the rest of a self-test: %w", err)
	}
	f := orphans.Finder{
		Cells: d.cells, House: d.house, Book: d.book, End: d.Orphan, Lives: func(id string) bool { return d.lifeOf(id) != nil || d.guests.Is(id) },
		Clear: d.clear, Drop: d.removeLayer, Answers: d.asked.Recover, Ledger: filepath.Join(d.State, "ledger"), Log: d.Log,
	}
	return f.Reconcile(ctx, rests)
}

func (d *Daemon) ledgerOptions() ledger.Options {
	return ledger.Options{Keys: filepath.Join(d.State, "keys"), Clock: d.Clock}
}

// Serve answers calls until ctx ends or, for an automatic daemon, nothing has
// happened for ten minutes. Running cells are ended and recorded before it returns.
func (d *Daemon) Serve(ctx context.Context) error {
	var err error
	if d.api == nil { // nobody left us any
		if d.api, d.fds, err = door.Listen(d.Run); err != nil {
			return err
		}
	}
	defer sys.CloseAll([]*os.File{d.fds, d.api})
	d.door = door.New(door.Config{
		API: d.api, FDs: d.fds, Desk: d.desk, Handler: d.idle.Note(d.handler()), Owners: d.Owners, Log: d.Log,
	})
	if err := d.door.Open(); err != nil {
		return err
	}
	d.Log.Info("skepd serves", "run", d.Run, "state", d.State)
	why := cells.Cause{Word: "stop", Detail: "skepd was stopped"}
	select {
	case err = <-d.door.Failed():
	case <-ctx.Done():
	case <-d.ctx.Done():
	case <-gone(d.Driver):
		// Root alone can start another one, and has no part in a skepd that runs.
		why = cells.Cause{Word: "failed", Detail: "skep-worker died, and skepd ends with it"}
		d.Log.Error("the worker is gone: skepd ends its cells, then itself")
	}
	d.guests.EndAll(why) // while their connectors can still call
	// From here on a caller finds no skepd, and starts one that waits for our lock.
	// Without the lock, what stands at these paths could be that one's.
	d.unlisten("api.sock")
	d.endAll(why)
	d.unlisten("fd.sock")
	d.door.Close(ctx)
	return errors.Join(err, d.Close())
}

func (d *Daemon) unlisten(name string) { _ = os.Remove(filepath.Join(d.Run, name)) }

// gone is closed when the driver can start nothing any more.
func gone(d cell.Driver) <-chan struct{} {
	if m, ok := d.(cell.Mortal); ok {
		return m.Gone()
	}
	return nil
}

// Close gives everything back. Cells must have ended.
func (d *Daemon) Close() error {
	d.stop()
	d.idle.Close()
	d.names.Close()
	d.boxes.Close()
	return d.release()
}

func (d *Daemon) release() error {
	var err error
	if d.desk != nil {
		d.desk.Close()
	}
	if d.models != nil {
		err = d.models.Close()
	}
	if d.ledger != nil {
		err = errors.Join(err, d.ledger.Close())
	}
	if d.lock != nil {
		_ = d.lock.Close()
	}
	return err
}

// busy tells whether a cell runs.
func (d *Daemon) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.live) > 0 || d.guests.Count() > 0
}
