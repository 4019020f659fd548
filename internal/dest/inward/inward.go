// Package inward delivers what comes from outside to the agent of a cell (boundary.md,
// section 14).
//
// Its laws:
//   - It opens nothing for a Permit that the gate has not made, and dials nothing itself:
//     whoever made the cell connects, inside of it, to the port of the Permit and to no
//     other (B172, B173).
//   - What the agent's side says about a delivery is no evidence: bytes and end are those
//     that passed here (B176).
package inward

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/dest/internet/splicer"
	"skep.dev/skep/internal/flow"
)

var errNoPermit = errors.New("deliver without a valid permit")

// Connect reaches a port of the cell's own loopback: on 127.0.0.1, then on ::1. The
// connection is the caller's, and can be spliced.
type Connect func(ctx context.Context, port uint16) (net.Conn, error)

// Dest is the agent's own port.
type Dest struct {
	connect Connect
	loop    splicer.Loop
}

// New delivers by connect.
func New(connect Connect) *Dest { return &Dest{connect: connect} }

// Open connects to the agent, or fails with a *boundary.Failure.
func (d *Dest) Open(ctx context.Context, p boundary.Permit) (boundary.Upstream, error) {
	q := p.Request()
	if !p.Valid() || q.Direction != flow.In {
		return nil, &boundary.Failure{Reason: flow.PolicyUnavailable, Err: errNoPermit}
	}
	ctx, cancel := context.WithTimeout(ctx, boundary.IngressTime)
	defer cancel()
	c, err := d.connect(ctx, q.Port)
	if err != nil {
		return nil, &boundary.Failure{Reason: flow.IngressUnreachable, Err: err}
	}
	agent, ok := c.(splicer.Stream)
	if !ok {
		_ = c.Close()
		return nil, &boundary.Failure{Reason: flow.IngressUnreachable, Err: errors.New("the agent's side is no stream")}
	}
	return &upstream{agent: agent, loop: &d.loop, permit: p}, nil
}

// upstream is one connection to the agent, waiting for its caller.
type upstream struct {
	agent  splicer.Stream
	loop   *splicer.Loop
	permit boundary.Permit
}

// Address is where the agent was reached; invalid where a guest did that.
func (u *upstream) Address() netip.AddrPort {
	a, ok := u.agent.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port())
}

// Dropped is 0: nothing is resolved.
func (u *upstream) Dropped() int { return 0 }

// Carry relays until both directions have ended (B20). Up is from the caller to the agent.
func (u *upstream) Carry(ctx context.Context, from net.Conn) boundary.End {
	caller, ok := from.(splicer.Stream)
	if !ok {
		boundary.Reset(from)
		boundary.Reset(u.agent)
		return boundary.End{Reason: flow.IngressUnreachable}
	}
	var meter splicer.Meter
	f, err := u.loop.New(caller, u.agent, &meter, u.permit.Bytes(), u.permit.Idle())
	if err != nil {
		boundary.Reset(caller)
		boundary.Reset(u.agent)
		return boundary.End{Reason: flow.Busy}
	}
	// From now on both are the loop's alone.
	_, _ = caller.Close(), u.agent.Close()
	stop := context.AfterFunc(ctx, func() { f.Reset(net.ErrClosed) })
	defer stop()
	f.BeginDown()
	f.BeginUp()
	err = errors.Join(f.Up(), f.Down())
	return boundary.End{Up: meter.Up.Load(), Down: meter.Down.Load(), Reason: endOf(ctx, err)}
}

func endOf(ctx context.Context, err error) flow.Reason {
	switch {
	case err == nil:
		return flow.None
	case ctx.Err() != nil:
		return flow.Revoked
	case errors.Is(err, splicer.ErrIdle):
		return flow.IdleTimeout
	}
	return boundary.EndedBy(err)
}
