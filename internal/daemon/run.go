package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/door"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/daemon/furniture"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/daemon/terms"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/profile"
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
	a, err := d.admit(q.Msg, p.UID)
	if err != nil {
		return err
	}
	defer a.close()
	l, err := d.declare(a, begin)
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	for _, n := range notices(a) {
		_ = out.Send(&skepv1.CellEvent{Notice: n}) // a caller that left does not stop a cell
	}
	// From here on the cell's life does not hang on the caller's.
	if err := d.build(l, a); err != nil {
		d.collect(l)
		d.book.Settle(l.id, begin, ending.Failed, l.reason(cells.Cause{Word: "failed", Detail: err.Error()}), cells.Failed)
		d.book.Keep(l.id)
		d.clear(l.id)
		sys.CloseAll(l.held)
		d.removeLayer(l.id)
		l.conclude()
		d.work.Done()
		return d.tellOnce(l.id, out)
	}
	if a.request.ConfirmedHow != "shipped" { // the shipped profile asks for a model that nobody may have set up
		for _, n := range l.noted() {
			_ = out.Send(&skepv1.CellEvent{Notice: n})
		}
	}
	return d.report(ctx, l, out)
}

// notices are what a person should know before the agent's first byte.
func notices(a *application) []string {
	var list []string
	if len(a.unenforced) > 0 {
		list = append(list, "not enforced on this host: budget."+strings.Join(a.unenforced, ", budget."))
	}
	if asked := a.request.WorkingDir; asked != "" && a.dir != filepath.Clean(asked) {
		list = append(list, asked+" is not granted: the agent starts in "+a.dir)
	}
	return list
}

// declare makes the cell's record, its first entry (L3), and beside the ledger's sync
// its directories: after it the cell exists, whatever happens.
func (d *Daemon) declare(a *application, now time.Time) (*life, error) {
	id := cells.NewID()
	r := cells.Record{
		ID: id, Name: a.request.Name, State: cells.Building, UID: a.uid, Argv: a.request.Argv, WorkingDir: a.dir,
		Profile: a.profile.Effective(), ProfileName: a.profile.File, ProfileDigest: a.profile.Digest(),
		Rules: terms.Rules(a.plan), Grants: furniture.Grants(a.plan), Unenforced: a.unenforced, Created: now,
	}
	l := d.newLife(id, now, a.profile, a.unenforced)
	l.traffic = d.owners.Cell(a.uid)
	d.mu.Lock()
	if d.ending || d.ctx.Err() != nil {
		d.mu.Unlock()
		return nil, errors.New("skepd is ending: try again")
	}
	d.live[id] = l
	d.work.Add(1)
	d.mu.Unlock()
	d.boxes.Prepare() // beside what is recorded, opened and made here
	keep, err := d.cells.Add(r)
	if err == nil {
		var beside sync.WaitGroup
		beside.Go(func() { // which the ledger's sync leaves the processor to
			l.disk = d.gauge(l, true)
			l.spec, l.unfurnished = d.furnish(l, a)
		})
		err = d.record.Append(id, declared(a, r))
		if beside.Wait(); err != nil {
			closeSpec(l.spec)
			sys.CloseAll(l.held)
			d.removeRun(id)
			err = errors.Join(err, keep(), d.cells.Remove(id))
		}
	}
	if err != nil {
		d.forget(l)
		d.work.Done()
		return nil, err
	}
	l.kept = sync.OnceValue(keep)
	go func() { _ = l.kept() }() // beside the build: after the ledger's sync, not in its way
	return l, nil
}

func declared(a *application, r cells.Record) *kind.CellDeclared {
	digest := sha256.New()
	for _, arg := range r.Argv[1:] {
		digest.Write([]byte(arg))
		digest.Write([]byte{0})
	}
	return &kind.CellDeclared{
		Name: r.Name, Program: kind.Bytes(r.Argv[0]), Args: len(r.Argv) - 1, ArgsDigest: hex.EncodeToString(digest.Sum(nil)),
		Profile: kind.Bytes(r.ProfileName), ProfileDigest: r.ProfileDigest, Rights: terms.Rights(a.profile, a.plan),
		ConfirmedBy: fmt.Sprintf("uid:%d", a.uid), ConfirmedHow: a.request.ConfirmedHow,
	}
}

// build makes the cell and starts it: box first, then the agent (B163).
func (d *Daemon) build(l *life, a *application) (err error) {
	ctx, cancel := context.WithTimeout(d.ctx, buildTime)
	defer cancel()
	defer closeSpec(l.spec)
	if l.unfurnished != nil {
		return l.unfurnished
	}
	policy, err := d.policy(a.profile)
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
	b.Link.Assign(d.assignment(l, policy), recorder{d, l, b})
	l.spec.Box = b.Warden
	if err := d.serveModel(ctx, l, b); err != nil {
		b.Kill()
		return err
	}
	r, err := d.startBehind(ctx, b, l.spec)
	if err != nil {
		b.Kill()
		return err
	}
	b.Release()
	return d.started(l, r, a)
}

// startBehind starts the cell and waits until its box has answered a request
// under the policy (B163). The box gets the cell's sockets from the warden while
// that builds, so that both go on at once; a failure of one ends the other.
func (d *Daemon) startBehind(ctx context.Context, b *boxes.Box, spec *cell.Spec) (cell.Running, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan error, 1)
	go func() {
		err := b.Link.Ready(ctx)
		if err != nil {
			cancel()
		}
		ready <- err
	}()
	r, err := d.Driver.Start(ctx, spec)
	if err != nil {
		cancel()
		if boxErr := <-ready; boxErr != nil && !errors.Is(boxErr, context.Canceled) {
			err = boxErr // it failed first, and Start because of it
		}
		return nil, err
	}
	if err := <-ready; err != nil {
		_ = r.Kill()
		<-r.Done()
		return nil, err
	}
	return r, nil
}

// started records that the agent runs. If that cannot be recorded, it must not; nor
// if the cell's own record, which was written meanwhile, could not be kept.
func (d *Daemon) started(l *life, r cell.Running, a *application) error {
	l.attend(r) // beside what is recorded and told of the start: a quick agent ends meanwhile
	now := d.Clock.Now()
	err := d.record.Append(l.id, terms.Started(r.Enforced(), a.unenforced, now.Sub(l.begin)))
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

// policy is what the box decides by.
func (d *Daemon) policy(p *profile.Profile) (*skepv1.BoxPolicy, error) {
	ceiling, err := d.Ceiling()
	if err != nil {
		return nil, err
	}
	return boxlink.Wire(boxlink.PolicyOf(p, ceiling))
}

// closeSpec closes the descriptors that the daemon opened for a cell; the driver
// has its own.
func closeSpec(s *cell.Spec) {
	if s == nil {
		return
	}
	for _, f := range []*os.File{s.Home, s.Tmp, s.Size, s.Control, s.Log, s.Stdio} {
		if f != nil {
			_ = f.Close()
		}
	}
	for _, g := range s.Grants {
		if g.Layer != nil {
			_ = g.Layer.Close()
		}
	}
}
