package internet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/dest/internet/splicer"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// upstream is one dialed connection, waiting for its agent.
type upstream struct {
	conn    splicer.Stream
	asked   netip.AddrPort // of the operator's proxy; invalid where conn was dialed
	dest    *Dest
	permit  boundary.Permit
	dropped int
}

// Address is what was dialed.
func (u *upstream) Address() netip.AddrPort {
	if u.asked.IsValid() || u.permit.Through() != nil {
		return u.asked
	}
	return remote(u.conn)
}

// Dropped is how many resolved addresses were not kept.
func (u *upstream) Dropped() int { return u.dropped }

// relay is one flow in both directions. While it is inspected, agent and up are
// used here; the rest is the loop's.
type relay struct {
	agent, up splicer.Stream
	flow      *splicer.Flow
	meter     splicer.Meter
	permit    boundary.Permit
	bytes     *boundary.Bytes
	idle      time.Duration
	ctx       context.Context

	inner       flow.Inner
	interceptor *Interceptor  // nil where the cell has no secrets
	down        bool          // the server's bytes are relayed
	ahead       chan struct{} // closed when what was read ahead is written; nil without it
	answering   atomic.Bool   // the agent gets an answer of ours: leave its end open
}

// errIdle says that nothing moved for too long; errRefused that the inner check
// ended the flow and the agent has been answered.
var (
	errIdle    = splicer.ErrIdle
	errRefused = errors.New("refused by the inner check")
)

// Carry relays until both directions have ended (B20).
func (u *upstream) Carry(ctx context.Context, agent net.Conn) boundary.End {
	c, ok := agent.(splicer.Stream)
	if !ok {
		boundary.Reset(agent)
		boundary.Reset(u.conn)
		return boundary.End{Reason: flow.DialFailed}
	}
	r := &relay{agent: c, up: u.conn, permit: u.permit, bytes: u.permit.Bytes(), idle: u.permit.Idle(), ctx: ctx, interceptor: u.dest.interceptor.Load()}
	if u.permit.Intercepted() {
		return r.intercept(r.interceptor)
	}
	var err error
	if r.flow, err = u.dest.loop.New(r.agent, r.up, &r.meter, r.bytes, r.idle); err != nil {
		boundary.Reset(r.agent)
		boundary.Reset(r.up)
		return boundary.End{Reason: flow.Busy}
	}
	stop := context.AfterFunc(ctx, func() { r.reset(net.ErrClosed) })
	defer stop()
	why := r.run()
	r.flow.Stop()
	_ = r.agent.Close()
	_ = r.up.Close()
	return boundary.End{Up: r.meter.Up.Load(), Down: r.meter.Down.Load(), Reason: why, Inner: r.inner}
}

// run is the whole life of a flow: check what the agent says, then relay both
// ways. It returns the reason of the end, None for an ordinary one.
func (r *relay) run() flow.Reason {
	var why flow.Reason
	var err error
	switch r.permit.Inspect() {
	case policy.WantHTTP:
		why, err = r.serveHTTP()
	case policy.WantFirst:
		r.startDown(nil)
		if why, err = r.checkFirst(); err == nil {
			err = r.pumpUp()
		}
	default:
		r.startDown(nil)
		err = r.pumpUp()
	}
	if err != nil && why == flow.None {
		r.reset(err)
	}
	var down error
	if r.down {
		down = r.flow.Down()
	}
	switch {
	case why != flow.None:
		return why
	case r.ctx.Err() != nil:
		return flow.Revoked
	case errors.Is(err, errIdle) || errors.Is(down, errIdle):
		return flow.IdleTimeout
	}
	return boundary.EndedBy(errors.Join(err, down))
}

// startDown relays from the server to the agent beside the caller, first what was
// read ahead.
func (r *relay) startDown(ahead []byte) {
	r.down = true
	if r.permit.Inspect() != policy.WantNothing {
		go r.watchDown()
	}
	if len(ahead) == 0 {
		r.flow.BeginDown()
		return
	}
	r.ahead = make(chan struct{})
	go func() {
		defer close(r.ahead)
		if err := r.send(r.agent, ahead, &r.meter.Down); err != nil {
			r.reset(err)
		}
		r.flow.BeginDown()
	}()
}

// watchDown ends a flow whose server has reset while the agent is still being read
// here.
func (r *relay) watchDown() {
	if err := r.flow.Down(); err != nil && !errors.Is(err, splicer.ErrStopped) && !r.answering.Load() {
		r.reset(err)
	}
}

// pumpUp relays from the agent to the server and passes on its end of file. From
// now on both connections are the loop's alone: the Go runtime would be woken for
// each of their bytes, too.
func (r *relay) pumpUp() error {
	r.flow.BeginUp()
	if r.ahead != nil {
		<-r.ahead
	}
	_ = r.agent.Close()
	_ = r.up.Close()
	return r.flow.Up()
}

// isIdle is for the parts of a flow that are moved here.
func (r *relay) isIdle() bool { return r.meter.Quiet() >= r.idle }

// send writes all of b, as the budget has room for it.
func (r *relay) send(to net.Conn, b []byte, count *atomic.Uint64) error {
	for len(b) > 0 {
		room, err := r.bytes.Charge(r.ctx, len(b))
		if err != nil {
			return err
		}
		n, err := to.Write(b[:room])
		r.bytes.Settle(0, n-room)
		count.Add(uint64(n))
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// reset ends both connections at once, so that each peer sees a reset.
func (r *relay) reset(why error) {
	boundary.Reset(r.agent)
	boundary.Reset(r.up)
	r.flow.Reset(why)
}
