package box

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/right"
)

// conntrack is that of the cell's namespace. Its warden asks, because the kernel answers
// nobody without CAP_NET_ADMIN there, which the box does not have.
type conntrack struct{ kernel *kernel }

// Origin implements datagrams.Kernel.
func (c conntrack) Origin(ctx context.Context, source netip.AddrPort) (netip.AddrPort, error) {
	a, err := c.ask(ctx, opOrigin, source)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask where a datagram was going: %w", err)
	}
	return originOf(a.kernel), nil
}

// Forget implements datagrams.Kernel. A flow that is not there is as good.
func (c conntrack) Forget(ctx context.Context, source netip.AddrPort) error {
	a, err := c.ask(ctx, opForget, source)
	if err != nil && a.errno != syscall.ENOENT {
		return fmt.Errorf("forget a flow of datagrams: %w", err)
	}
	return nil
}

func (c conntrack) ask(ctx context.Context, op uint32, source netip.AddrPort) (answer, error) {
	id, answers, err := c.kernel.begin(ctx, op, span{transport: flow.UDP, first: source.Addr(), ports: right.PortRange{First: source.Port(), Last: source.Port()}})
	if err != nil {
		return answer{}, err
	}
	a, err := c.kernel.finish(ctx, id, answers)
	if err == nil && a.errno != 0 {
		err = a.errno
	}
	return a, err
}

// probe tells whether the kernel answers at all: about a source that no datagram has.
func (c conntrack) probe(ctx context.Context) error {
	a, err := c.ask(ctx, opOrigin, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1))
	if err == nil || a.errno == syscall.ENOENT {
		return nil
	}
	return fmt.Errorf("ask conntrack, without which no datagram of a cell can be carried: %w; remove transport udp from the profile's net rules, or load nf_conntrack_netlink", err)
}
