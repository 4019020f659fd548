package sys

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OriginalDst is the destination of a connection before NAT redirected it:
// SO_ORIGINAL_DST for IPv4, IP6T_SO_ORIGINAL_DST for IPv6 (both 80;
// linux/netfilter_ipv4.h, linux/netfilter_ipv6/ip6_tables.h). It fails with
// ENOENT where connection tracking does not know the connection.
func OriginalDst(c syscall.RawConn, v6 bool) (netip.AddrPort, error) {
	// Large enough for sockaddr_in6: family 2, port 2, flow info 4, address 16, scope 4.
	var sa [28]byte
	level := unix.SOL_IP
	if v6 {
		level = unix.SOL_IPV6
	}
	size := uint32(len(sa))
	var errno syscall.Errno
	err := c.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), 80,
			uintptr(unsafe.Pointer(&sa[0])), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read original destination: %w", err)
	}
	if errno != 0 {
		return netip.AddrPort{}, fmt.Errorf("read original destination: %w", errno)
	}
	port := binary.BigEndian.Uint16(sa[2:])
	if v6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(sa[8:24])), port), nil
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), port), nil
}

// SocketKind is what a passed socket is.
type SocketKind struct {
	Domain int // unix.AF_INET and so on
	Type   int // unix.SOCK_STREAM and so on
	Addr   netip.AddrPort
}

// IsStream, IsDatagram, IsNetlink and Is6 read a kind.
func (k SocketKind) IsStream() bool { return k.Type == unix.SOCK_STREAM && k.isIP() }

// IsDatagram reports a UDP socket.
func (k SocketKind) IsDatagram() bool { return k.Type == unix.SOCK_DGRAM && k.isIP() }

// IsNetlink reports a netlink socket.
func (k SocketKind) IsNetlink() bool { return k.Domain == unix.AF_NETLINK }

// IsMessages reports a unix socket that keeps the bounds of messages.
func (k SocketKind) IsMessages() bool {
	return k.Domain == unix.AF_UNIX && k.Type == unix.SOCK_SEQPACKET
}

// Is6 reports an IPv6 socket.
func (k SocketKind) Is6() bool { return k.Domain == unix.AF_INET6 }

func (k SocketKind) isIP() bool { return k.Domain == unix.AF_INET || k.Domain == unix.AF_INET6 }

// KindOf asks the kernel what a socket is; Addr is its own address for IP sockets.
func KindOf(f *os.File) (SocketKind, error) {
	var k SocketKind
	err := onFD(f, false, func(fd int) error {
		var err error
		if k.Domain, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil {
			return err
		}
		if k.Type, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
			return err
		}
		sa, err := unix.Getsockname(fd)
		switch a := sa.(type) {
		case *unix.SockaddrInet4:
			k.Addr = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
		case *unix.SockaddrInet6:
			k.Addr = netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
		}
		return err
	})
	if err != nil {
		return SocketKind{}, fmt.Errorf("ask what socket %s is: %w", f.Name(), err)
	}
	return k, nil
}

// SocketAt reports whether a descriptor number is an open socket.
func SocketAt(fd int) bool {
	_, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil
}
