// Package tcpsock asks the kernel about TCP sockets: what [sys] is to sockets of all kinds.
package tcpsock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNoSocket says that there is no such socket: it was closed meanwhile, or is in another
// network namespace.
var ErrNoSocket = errors.New("no such socket")

const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY, linux/sock_diag.h

	diagRequestSize = 56 // struct inet_diag_req_v2, linux/inet_diag.h
	diagUID         = 64 // of idiag_uid in struct inet_diag_msg
	diagMessageSize = 72
)

// Owner is the user of a TCP socket of this network namespace, by the kernel's word
// (sock_diag(7)). A connection's other end names nobody by itself: SO_PEERCRED is of Unix
// sockets alone. What nobody holds any more belongs to root.
func Owner(local, remote netip.AddrPort) (uid uint32, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, fmt.Errorf("ask whose a socket is: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, diagRequest(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("ask whose a socket is: %w", err)
	}
	buf := make([]byte, os.Getpagesize())
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return 0, fmt.Errorf("ask whose a socket is: %w", err)
	}
	return diagOwner(buf[:n])
}

// diagRequest asks for exactly one socket.
func diagRequest(local, remote netip.AddrPort) []byte {
	family := byte(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+diagRequestSize)
	binary.NativeEndian.PutUint32(b, unix.NLMSG_HDRLEN+diagRequestSize)
	binary.NativeEndian.PutUint16(b[4:], diagByFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // in any state
	b = binary.BigEndian.AppendUint16(b, local.Port())
	b = binary.BigEndian.AppendUint16(b, remote.Port())
	for _, a := range []netip.Addr{local.Addr(), remote.Addr()} {
		var room [16]byte
		copy(room[:], a.AsSlice())
		b = append(b, room[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0)              // on any interface
	return append(b, "\xff\xff\xff\xff\xff\xff\xff\xff"...) // with any cookie
}

func diagOwner(answer []byte) (uint32, error) {
	if len(answer) < unix.NLMSG_HDRLEN+4 {
		return 0, errors.New("ask whose a socket is: no answer")
	}
	kind, body := binary.NativeEndian.Uint16(answer[4:]), answer[unix.NLMSG_HDRLEN:]
	switch {
	case kind == unix.NLMSG_ERROR && -int32(binary.NativeEndian.Uint32(body)) == int32(unix.ENOENT):
		return 0, ErrNoSocket
	case kind == unix.NLMSG_ERROR:
		return 0, fmt.Errorf("ask whose a socket is: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(body))))
	case kind != diagByFamily || len(body) < diagMessageSize:
		return 0, errors.New("ask whose a socket is: not the answer")
	}
	return binary.NativeEndian.Uint32(body[diagUID:]), nil
}
