// Package native is the driver that confines with this host's own kernel: it
// says what a cell needs, as requests to the worker, and follows what the
// cell's warden reports.
//
// Its laws:
//   - It needs no capability and opens no path: all comes in the Spec, or lies
//     beneath what does.
//   - Every step that a cell's tree is built of is decided in steps.go, in one
//     order: the skeleton first, then grants from the outside in, then what
//     narrows them.
package native

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// Driver speaks to one worker.
type Driver struct {
	conn    *os.File
	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan answer
	begun   bool // the worker was asked for a half-built cell, which no Start has had
	failed  error
	gone    chan struct{} // closed when the worker is
	pause   *pause        // nil unless calls wait
	mounts  sys.MountTable
	views   views
}

type answer struct {
	reply proto.Reply
	files []*os.File
	err   error
}

var (
	_ cell.Driver  = (*Driver)(nil)
	_ cell.Mortal  = (*Driver)(nil)
	_ cell.Sweeper = (*Driver)(nil)
	_ cell.Meter   = (*Driver)(nil)

	_ cell.Preparer = (*Driver)(nil)

	_ cell.KeyRelay  = (*Driver)(nil)
	_ cell.Pauser    = (*Driver)(nil)
	_ cell.Inheritor = (*Driver)(nil)
)

// New returns a driver on a seqpacket socket to a worker, which it owns.
func New(worker *os.File) *Driver {
	d := &Driver{conn: worker, waiting: map[uint64]chan answer{}, gone: make(chan struct{})}
	go d.receive()
	return d
}

// Close ends the connection; the worker then ends, and no cell does.
func (d *Driver) Close() error { return d.conn.Close() }

func (d *Driver) receive() {
	for {
		var a answer
		id, files, err := proto.Receive(d.conn, &a.reply)
		var body *proto.BodyError
		if sys.IsTimeout(err) {
			d.fallSilent()
			return
		}
		if err != nil && !errors.As(err, &body) {
			d.fail(fmt.Errorf("the worker is gone: %w", err))
			return
		}
		a.files, a.err = files, err
		d.mu.Lock()
		ch := d.waiting[id]
		delete(d.waiting, id)
		d.settle()
		d.mu.Unlock()
		if ch == nil {
			sys.CloseAll(files)
			continue
		}
		ch <- a
	}
}

func (d *Driver) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
	close(d.gone)
	for id, ch := range d.waiting {
		delete(d.waiting, id)
		ch <- answer{err: err}
	}
	d.settle()
}

// Gone is closed when no worker answers any more.
func (d *Driver) Gone() <-chan struct{} { return d.gone }

// Sweep removes the control groups of a cell that has ended.
func (d *Driver) Sweep(ctx context.Context, id string) error {
	_, _, err := d.call(ctx, proto.Request{Close: &proto.Close{Cell: id}})
	return err
}

// Usage is what the kernel has counted of a cell so far.
func (d *Driver) Usage(ctx context.Context, id string) (cell.Usage, error) {
	reply, _, err := d.call(ctx, proto.Request{Count: &proto.Count{Cell: id}})
	if err != nil {
		return cell.Usage{}, err
	}
	if reply.Usage == nil {
		return cell.Usage{}, errors.New("the worker answered without what it counted")
	}
	return usage(reply.Usage), nil
}

func usage(u *proto.Usage) cell.Usage {
	return cell.Usage{Memory: u.Memory, Cache: u.Cache, MemoryPeak: u.MemoryPeak, OOMKills: u.OOMKills, Unforked: u.PidsMax, CPU: time.Duration(u.CPUNanos)}
}

// call sends one request and waits for its reply. The descriptors of a reply
// that comes too late are closed.
func (d *Driver) call(ctx context.Context, r proto.Request, files ...*os.File) (proto.Reply, []*os.File, error) {
	ch := make(chan answer, 1)
	if err := d.unpaused(ctx); err != nil {
		return proto.Reply{}, nil, err
	}
	if d.failed != nil {
		d.mu.Unlock()
		return proto.Reply{}, nil, d.failed
	}
	d.next++
	id := d.next
	d.waiting[id] = ch
	d.begun = d.begun && r.Build == nil
	// Sending within the lock keeps one message whole and the order that of the ids.
	err := proto.Send(d.conn, id, r, files...)
	if err != nil {
		delete(d.waiting, id)
		d.settle()
	}
	d.mu.Unlock()
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		err = fmt.Errorf("the worker is gone: %w", err)
	}
	if err != nil {
		return proto.Reply{}, nil, err
	}
	select {
	case a := <-ch:
		if a.err == nil && a.reply.Error != "" {
			a.err = errors.New(a.reply.Error)
		}
		if a.err != nil {
			sys.CloseAll(a.files)
			return proto.Reply{}, nil, a.err
		}
		return a.reply, a.files, nil
	case <-ctx.Done():
		go func() { sys.CloseAll((<-ch).files) }()
		return proto.Reply{}, nil, fmt.Errorf("wait for the worker: %w", ctx.Err())
	}
}

// Features says what the worker found.
func (d *Driver) Features(ctx context.Context) (cell.Features, error) {
	reply, _, err := d.call(ctx, proto.Request{Probe: &proto.Probe{}})
	if err != nil {
		return cell.Features{}, err
	}
	if reply.Features == nil {
		return cell.Features{}, errors.New("the worker answered without its features")
	}
	f := reply.Features
	return cell.Features{
		Capable: f.Capable, AgentID: f.AgentID, GroupID: f.GroupID, Limits: cell.Enforced(f.Limits),
	}, nil
}

// Replace has the worker execute the program that stands at its path now, and returns
// which build that is. With an error the one that was there goes on. Requests of other
// callers meanwhile wait for the one or the other.
func (d *Driver) Replace(ctx context.Context) (build string, err error) {
	reply, _, err := d.call(ctx, proto.Request{Replace: &proto.Replace{}})
	if err == nil {
		d.mu.Lock()
		d.begun = false // what it had begun ended with it
		d.mu.Unlock()
	}
	return reply.Build, err
}

// Prepare has the worker begin a cell (L22). Where it cannot, the next Start does.
func (d *Driver) Prepare() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil && d.pause == nil && !d.begun {
		d.begun = true
		d.next++
		_ = proto.Send(d.conn, d.next, proto.Request{Prepare: &proto.Prepare{}})
	}
}

// Box starts a boundary process.
func (d *Driver) Box(ctx context.Context, ends cell.BoxEnds) (cell.Process, error) {
	files := []*os.File{ends.Daemon, ends.Warden, ends.Lifeline}
	if ends.Model != nil {
		files = append(files, ends.Model)
	}
	return d.program(ctx, proto.Request{Box: &proto.Box{Model: ends.Model != nil}}, files)
}

// Layer starts a process that serves layers.
func (d *Driver) Layer(ctx context.Context, conn *os.File, powers cell.LayerPowers, grants []cell.LayerGrant) (cell.Process, error) {
	request := &proto.Layer{Walk: powers.Walk, Open: powers.Open, Remove: powers.Remove, Measure: powers.Measure}
	files := []*os.File{conn}
	for _, g := range grants {
		names := slices.Sorted(maps.Keys(g.Files))
		request.Grants = append(request.Grants, proto.LayerGrant{Plain: g.Base == nil && g.Files == nil, Own: g.Files != nil, Files: names})
		for _, name := range names {
			files = append(files, g.Files[name])
		}
		if g.Base != nil {
			files = append(files, g.Base)
		}
		files = append(files, g.Layer)
	}
	return d.program(ctx, proto.Request{Layer: request}, files)
}

// Keys starts the process between a cell and its owner's ssh-agent.
func (d *Driver) Keys(ctx context.Context, skepd, listener, agent *os.File) (cell.Process, error) {
	return d.program(ctx, proto.Request{Keys: &proto.Keys{}}, []*os.File{skepd, listener, agent})
}

func (d *Driver) program(ctx context.Context, r proto.Request, files []*os.File) (cell.Process, error) {
	reply, got, err := d.call(ctx, r, files...)
	if err != nil {
		return nil, err
	}
	if len(got) != 1 {
		sys.CloseAll(got)
		return nil, errors.New("the worker answered without a pidfd")
	}
	return newProcess(reply.Pid, got[0]), nil
}
