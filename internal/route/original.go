package route

import (
	"fmt"
	"net"
	"net/netip"

	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/sys"
)

// Original is where a redirected TCP connection was going before the cell's NAT
// chain turned it to us (B12). An error, or an address that the listener itself
// has, means no-original-destination (B16).
func Original(c *net.TCPConn) (netip.AddrPort, error) {
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read the local address of a connection: %w", err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("reach the socket of a connection: %w", err)
	}
	dst, err := sys.OriginalDst(raw, local.Addr().Unmap().Is6())
	if err != nil {
		return netip.AddrPort{}, err
	}
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	// Loopback is never redirected, so an original destination on it is the
	// listener, asked for directly.
	if dst == netip.AddrPortFrom(local.Addr().Unmap(), local.Port()) || dst.Addr().IsLoopback() || dst.Port() == 0 {
		return netip.AddrPort{}, fmt.Errorf("connection was aimed at the listener itself, %s", dst)
	}
	return dst, nil
}

// Foreign tells whether what was going to a can have been turned to us: loopback and the
// cell's own addresses never are (B12), so that it was aimed at our sockets (B16).
func Foreign(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsLoopback() && !a.Addr().IsUnspecified() && a.Addr() != name.Cell4() && a.Addr() != name.Cell6()
}
