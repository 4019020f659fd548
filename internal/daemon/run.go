package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/admit"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/door"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/daemon/furniture"
	"skep.dev/skep/internal/daemon/keys"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/daemon/terms"
	"skep.dev/skep/internal/sys"
)

// buildTime bounds the time from declared to running.
const buildTime = 30 * time.Second

// spareWait is how long after a start the next spare box is made, if the cell lives.
const spareWait = 50 * time.Millisecond

// run is the life of a cell from its request, as one path: check, declare,
// build, follow.
func (d *Daemon) run(ctx context.Context, q *connect.Request[skepv1.RunRequest], out *connect.ServerStream[skepv1.CellEvent]) error {
	p, ok := peer.Of(ctx)
	if !ok {
		return connect.NewError(connect.CodePermissionDenied, errors.New("the caller is unknown"))
	}
	// First, and not in the cell's time: only the first of a host waits for it.
	if _, err := d.proved(); err != nil {
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	begin := d.Clock.Now()
	a, err := d.admit.Admit(q.Msg, p.UID)
	if err != nil {
		return err
	}
	defer a.Close()
	l, err := d.declare(a, begin)
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	for _, n := range a.Notices() {
		_ = out.Send(&skepv1.CellEvent{Notice: n}) // a caller that left does not stop a cell
	}
	// From here on the cell's life does not hang on the caller's.
	if err := d.build(l, a); err != nil {
		l.keys.Close()
		d.collect(l)
		d.book.Settle(l.id, begin, ending.Failed, l.reason(cells.Cause{Word: "failed", Detail: err.Error()}), cells.Failed)
		d.book.Keep(l.id)
		d.clear(l.id)
		sys.CloseAll(l.held)
		l.secrets.Close()
		d.removeLayer(l.id)
		l.conclude()
		d.work.End()
		return d.tellOnce(l.id, out)
	}
	if a.Request.ConfirmedHow != "shipped" { // the shipped profile asks for a model that nobody may have set up
		for _, n := range l.noted() {
			_ = out.Send(&skepv1.CellEvent{Notice: n})
		}
	}
	return d.report(ctx, l, out)
}

// declare makes the cell's record, its first entry (L3), and beside the ledger's sync
// its directories: after it the cell exists, whatever happens.
func (d *Daemon) declare(a *admit.Application, now time.Time) (*life, error) {
	id := cells.NewID()
	r := cells.Record{
		ID: id, Name: a.Request.Name, State: cells.Building, UID: a.UID, Argv: a.Request.Argv, WorkingDir: a.Dir,
		Profile: a.Profile.Effective(), ProfileName: a.Profile.File, ProfileDigest: a.Profile.Digest(),
		Rules: terms.Rules(a.Plan), Grants: furniture.Grants(a.Plan), Unenforced: a.Unenforced, Created: now,
	}
	l := d.newLife(id, now, a.Profile, a.Unenforced)
	l.traffic = d.owners.Cell(a.UID)
	l.secrets, a.Secrets = a.Secrets, nil
	d.mu.Lock()
	if d.ending || d.ctx.Err() != nil {
		d.mu.Unlock()
		return nil, errors.New("skepd is ending: try again")
	}
	d.live[id] = l
	d.work.Begin()
	d.mu.Unlock()
	d.boxes.Prepare() // beside what is recorded, opened and made here
	keep, err := d.cells.Add(r)
	if err == nil {
		var beside sync.WaitGroup
		beside.Go(func() { // which the ledger's sync leaves the processor to
			l.disk = d.gauge(l, true)
			l.spec, l.unfurnished = d.furnish(l, a)
		})
		err = d.record.Append(id, a.Declared(r))
		if beside.Wait(); err != nil {
			furniture.Close(l.spec)
			sys.CloseAll(l.held)
			l.secrets.Close()
			d.removeRun(id)
			err = errors.Join(err, keep(), d.cells.Remove(id))
		}
	}
	if err != nil {
		d.forget(l)
		d.work.End()
		return nil, err
	}
	l.kept = sync.OnceValue(keep)
	go func() { _ = l.kept() }() // beside the build: after the ledger's sync, not in its way
	return l, nil
}

// build makes the cell and starts it: box first, then the agent (B163).
func (d *Daemon) build(l *life, a *admit.Application) (err error) {
	ctx, cancel := context.WithTimeout(d.ctx, buildTime)
	defer cancel()
	defer furniture.Close(l.spec)
	if l.unfurnished != nil {
		return l.unfurnished
	}
	policy, err := d.policy(l)
	if err != nil {
		return err
	}
	b, err := d.boxes.Take(ctx)
	if err != nil {
		return err
	}
	l.boundary.Begin(b)
	if err := d.bytes.Open(l.id, l.profile.Budget.Net); err != nil {
		b.Kill()
		return err
	}
	assignment, err := d.assignment(l, policy)
	if err != nil {
		b.Kill()
		return err
	}
	b.Link.Assign(assignment, recorder{d, l, b})
	l.spec.Box = b.Warden
	if a.Keys != nil {
		l.keys, err = keys.Start(ctx, d.Driver, d.house.Keys(l.id), a.Keys, a.Agent, l.recordUse)
		if err != nil {
			b.Kill()
			return err
		}
	}
	if err := d.entrust(ctx, l, b, a.Values); err != nil {
		b.Kill()
		return err
	}
	if err := l.asking().Connect(ctx, d.models, b); err != nil {
		b.Kill()
		return err
	}
	r, err := b.Build(ctx, d.Driver, l.spec)
	if err != nil {
		b.Kill()
		return err
	}
	b.Release()
	return d.started(l, r, a)
}

// started records that the agent runs. If that cannot be recorded, it must not; nor
// if the cell's own record, which was written meanwhile, could not be kept.
func (d *Daemon) started(l *life, r cell.Running, a *admit.Application) error {
	l.attend(r) // beside what is recorded and told of the start: a quick agent ends meanwhile
	now := d.Clock.Now()
	err := d.record.Append(l.id, terms.Started(r.Enforced(), a.Unenforced, now.Sub(l.begin)))
	if err == nil {
		err = l.kept()
	}
	if err == nil {
		err = d.cells.Set(l.id, func(c *cells.Record) { c.State, c.Started = cells.Running, now })
	}
	if err != nil {
		_ = r.Kill()
		<-r.Done()
		l.boundary.Kill()
		return err
	}
	l.started(r)
	d.limit(l, now)
	d.watchSecrets(l)
	l.tell()
	go l.follow()
	// A box starts beside the agent, not beside its start; a quick agent's after it.
	l.after("spare", spareWait, d.boxes.Fill)
	return nil
}

// report sends what becomes of the cell until it has ended or the caller left.
func (d *Daemon) report(ctx context.Context, l *life, out *connect.ServerStream[skepv1.CellEvent]) error {
	for {
		changed, over := l.watch()
		if err := d.tellOnce(l.id, out); err != nil || over {
			return err
		}
		select {
		case <-changed:
		case <-d.door.Leaving():
			return door.ErrAgain
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow goes on where run had to leave.
func (d *Daemon) follow(ctx context.Context, q *connect.Request[skepv1.FollowRequest], out *connect.ServerStream[skepv1.CellEvent]) error {
	r, err := d.find(q.Msg.Cell)
	if err != nil {
		return err
	}
	if l := d.lifeOf(r.ID); l != nil {
		return d.report(ctx, l, out)
	}
	return d.tellOnce(r.ID, out)
}

func (d *Daemon) tellOnce(id string, out *connect.ServerStream[skepv1.CellEvent]) error {
	r, ok := d.cells.Get(id)
	if !ok {
		return connect.NewError(connect.CodeNotFound, cells.ErrNone)
	}
	return out.Send(&skepv1.CellEvent{Cell: cells.Message(r)})
}
