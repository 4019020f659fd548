package box

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/sys/tcpsock"
)

// reach is a connection to a port of the cell's own loopback, IPv4 first (B172, B173): the
// warden begins it inside, where the box has no socket of its own and wants none.
func (k *kernel) reach(ctx context.Context, port uint16) (net.Conn, error) {
	c, err := k.connect(ctx, netip.AddrPortFrom(policy.IngressAt(), port))
	if err == nil || ctx.Err() != nil {
		return c, err
	}
	c, other := k.connect(ctx, netip.AddrPortFrom(netip.IPv6Loopback(), port))
	if other != nil {
		return nil, errors.Join(err, other)
	}
	return c, nil
}

// connect is one of the two.
func (k *kernel) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	id, answers, err := k.begin(ctx, opConnect, span{transport: flow.TCP, first: to.Addr(), ports: right.PortRange{First: to.Port(), Last: to.Port()}})
	if err != nil {
		return nil, fmt.Errorf("connect inside the cell: %w", err)
	}
	a, err := k.finish(ctx, id, answers)
	switch {
	case err != nil:
		return nil, fmt.Errorf("connect inside the cell: %w", err)
	case a.errno != 0:
		return nil, fmt.Errorf("connect inside the cell: %w", a.errno)
	case a.socket == nil:
		return nil, errors.New("connect inside the cell: the warden gave no socket")
	}
	defer func() { _ = a.socket.Close() }() // the net package keeps a duplicate
	late, ok := ctx.Deadline()
	if !ok {
		late = time.Now().Add(boundary.IngressTime)
	}
	if err := a.socket.SetWriteDeadline(late); err != nil {
		return nil, fmt.Errorf("connect inside the cell: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = a.socket.SetWriteDeadline(time.Unix(1, 0)) })()
	if err := tcpsock.Connected(a.socket); err != nil {
		return nil, fmt.Errorf("connect to %s inside the cell: %w", to, err)
	}
	c, err := net.FileConn(a.socket)
	if err != nil {
		return nil, fmt.Errorf("connect inside the cell: %w", err)
	}
	return c, nil
}
