package box

import (
	"encoding/binary"
	"net/netip"
	"syscall"
)

// Numbers of linux/netlink.h, nf_tables.h and nfnetlink_conntrack.h.
const (
	netlinkHead  = 16
	netlinkError = 2
	nfgenHead    = 4 // behind the head of a netfilter message

	objectData     = 4 // NFTA_OBJ_DATA
	counterPackets = 2 // NFTA_COUNTER_PACKETS

	tupleOriginal      = 1 // CTA_TUPLE_ORIG
	tupleIP, tupleNext = 1, 2
	toIPv4, toIPv6     = 2, 4 // CTA_IP_V4_DST, CTA_IP_V6_DST
	toPort             = 3    // CTA_PROTO_DST_PORT
)

// answerOf reads a message of the warden, of answerSize at least. One of an earlier build
// has the counter's value in it.
func answerOf(b []byte) answer {
	a := answer{errno: syscall.Errno(binary.LittleEndian.Uint32(b[8:]))}
	op, kernel := binary.LittleEndian.Uint32(b), b[answerSize:]
	switch {
	case op == opCounter && len(kernel) == 0:
		a.value = binary.LittleEndian.Uint64(b[16:])
	case op == opCounter:
		body, errno := netlinkBody(kernel)
		packets := attribute(attribute(body, objectData), counterPackets)
		if len(packets) == 8 {
			a.value = binary.BigEndian.Uint64(packets)
		} else if errno == 0 {
			errno = syscall.EIO
		}
		a.errno = errno
	case op == opOrigin || op == opForget:
		var body []byte
		body, a.errno = netlinkBody(kernel)
		a.kernel = append(body[:0:0], body...)
	}
	return a
}

// netlinkBody is the attributes of one netfilter message, or the error that it is.
func netlinkBody(b []byte) (attributes []byte, errno syscall.Errno) {
	if len(b) < netlinkHead+nfgenHead {
		return nil, syscall.EIO
	}
	if binary.NativeEndian.Uint16(b[4:]) == netlinkError {
		return nil, syscall.Errno(-int32(binary.NativeEndian.Uint32(b[netlinkHead:])))
	}
	return b[netlinkHead+nfgenHead:], 0
}

// attribute is the value of the first one of a type; nil where there is none.
func attribute(b []byte, kind uint16) []byte {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&0x3fff == kind {
			return b[4:size]
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}

// originOf is where the flow of a conntrack entry was going; invalid where that cannot be
// read.
func originOf(entry []byte) netip.AddrPort {
	tuple := attribute(entry, tupleOriginal)
	ip := attribute(tuple, tupleIP)
	to, ok := netip.AddrFromSlice(attribute(ip, toIPv4))
	if !ok {
		to, ok = netip.AddrFromSlice(attribute(ip, toIPv6))
	}
	port := attribute(attribute(tuple, tupleNext), toPort)
	if !ok || len(port) != 2 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(to.Unmap(), binary.BigEndian.Uint16(port))
}
