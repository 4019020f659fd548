package internet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/dest/internet/datagram"
	"skep.dev/skep/internal/flow"
)

// datagrams is one socket that is connected to the permitted peer: the kernel takes
// datagrams from nobody else (B44).
type datagrams struct {
	conn    *net.UDPConn
	room    *datagram.Room
	permit  boundary.Permit
	dropped int
}

// openUDP makes a socket to the first kept address that there is a route to. Whether
// anybody listens there shows only later.
func (d *Dest) openUDP(ctx context.Context, p boundary.Permit, kept []netip.Addr, dropped int) (boundary.Upstream, error) {
	var errs []error
	for _, a := range kept {
		c, err := (&net.Dialer{}).DialContext(ctx, "udp", netip.AddrPortFrom(a, p.Request().Port).String())
		if err != nil {
			errs = append(errs, fmt.Errorf("dial %s: %w", a, err))
			continue
		}
		if u, ok := c.(*net.UDPConn); ok {
			return &datagrams{conn: u, room: &d.room, permit: p, dropped: dropped}, nil
		}
		_ = c.Close()
	}
	err := errors.Join(errs...)
	return nil, &boundary.Failure{Reason: flow.DialFailed, Detail: dialDetail(err), Dropped: dropped, Err: err}
}

// Address is where datagrams go to.
func (d *datagrams) Address() netip.AddrPort { return remote(d.conn) }

// Dropped is how many resolved addresses were not kept.
func (d *datagrams) Dropped() int { return d.dropped }

// Carry relays whole payloads until either side ends.
func (d *datagrams) Carry(ctx context.Context, agent net.Conn) boundary.End {
	f := &datagram.Flow{Agent: agent, Peer: d.conn, Bytes: d.permit.Bytes(), Idle: d.permit.Idle(), Room: d.room}
	err := f.Relay(ctx)
	end := boundary.End{Up: f.Up(), Down: f.Down(), Reason: boundary.EndedBy(err)}
	switch {
	case ctx.Err() != nil:
		end.Reason = flow.Revoked
	case errors.Is(err, datagram.ErrIdle):
		end.Reason = flow.IdleTimeout
	}
	return end
}

// remote is the far end of a connection, never IPv4-mapped.
func remote(c net.Conn) netip.AddrPort {
	a, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
