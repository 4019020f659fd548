// Package inward delivers what comes from outside to the agent of a cell (boundary.md,
// section 14).
//
// Its laws:
//   - It opens nothing for a Permit that the gate has not made, and dials nothing itself:
//     whoever made the cell connects, inside of it, to the port of the Permit and to no
//     other (B172, B173).
//   - Unless its contract says otherwise, an agent sees nothing by which its caller, or the
//     mesh for him, says who he is: then what is delivered has to be HTTP, of which each
//     request is read, and none of its body is kept (B171).
//   - What the agent's side says about a delivery is no evidence: bytes and end are those
//     that passed here (B176).
package inward

import (
	"context"
	"errors"
	"net"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/dest/internet"
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
	relay   internet.Relay
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
	return d.relay.Upstream(agent, p), nil
}
