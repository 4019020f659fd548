package main

import (
	"encoding/binary"
	"net/netip"
)

// Numbers of rtnetlink(7), nfnetlink and if.h.
const (
	nlmRequest, nlmAck, nlmCreate, nlmExcl = 0x1, 0x4, 0x400, 0x200

	rtmSetLink, rtmNewAddr, rtmNewRoute = 19, 20, 24
	loIndex                             = 1 // the first device of every network namespace
	iffUp                               = 0x1
	afInet, afInet6                     = 2, 10
	ifaAddress, ifaLocal, ifaFlags      = 1, 2, 8
	ifaFNoDad                           = 0x02
	rtaOif, rtaPrefSrc                  = 4, 7
	rtTableMain, rtProtBoot             = 254, 3
	rtScopeLink, rtnUnicast             = 253, 1

	nfulnlMsgConfig              = 4<<8 | 1
	nfulaCfgCmd, nfulaCfgMode    = 1, 2
	nfulaCfgTimeout, nfulaCfgQth = 4, 5
	nfulnlCfgCmdBind             = 1
	nfulnlCopyPacket             = 2
	logCopyRange                 = 128
)

// The addresses of B11.
func cellIPv4() netip.Addr { return netip.MustParseAddr("100.127.255.254") }
func cellIPv6() netip.Addr { return netip.MustParseAddr("100::ffff:ffff:ffff:fffe") }

type message struct {
	kind, flags uint16
	body        []byte
}

// table is a run of netlink messages, numbered from 1. Only the one numbered
// last asks for an acknowledgement; an error comes back for any of them.
type table struct {
	bytes []byte
	last  int
}

func encode(last int, messages ...message) table {
	var out []byte
	for i, m := range messages {
		flags := m.flags | nlmRequest
		if i+1 == last {
			flags |= nlmAck
		}
		length := 16 + len(m.body)
		out = binary.NativeEndian.AppendUint32(out, uint32(length))
		out = binary.NativeEndian.AppendUint16(out, m.kind)
		out = binary.NativeEndian.AppendUint16(out, flags)
		out = binary.NativeEndian.AppendUint32(out, uint32(i+1))
		out = binary.NativeEndian.AppendUint32(out, 0)
		out = append(out, m.body...)
		for len(out)%4 != 0 {
			out = append(out, 0)
		}
	}
	return table{out, last}
}

func attribute(kind uint16, data []byte) []byte {
	out := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	out = binary.NativeEndian.AppendUint16(out, kind)
	out = append(out, data...)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	return out
}

func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func concat(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func linkUp() message {
	return message{rtmSetLink, 0, concat([]byte{0, 0, 0, 0}, u32(loIndex), u32(iffUp), u32(iffUp))}
}

func addAddress(family byte, addr netip.Addr, bits byte) message {
	raw := addr.AsSlice()
	return message{rtmNewAddr, nlmCreate | nlmExcl, concat(
		[]byte{family, bits, ifaFNoDad, 0}, u32(loIndex),
		attribute(ifaLocal, raw), attribute(ifaAddress, raw), attribute(ifaFlags, u32(ifaFNoDad)))}
}

// defaultRoute needs its source address: without one an IPv4 connect goes out
// from 0.0.0.0 and times out.
func defaultRoute(family byte, source netip.Addr) message {
	return message{rtmNewRoute, nlmCreate | nlmExcl, concat(
		[]byte{family, 0, 0, 0, rtTableMain, rtProtBoot, rtScopeLink, rtnUnicast}, u32(0),
		attribute(rtaOif, u32(loIndex)), attribute(rtaPrefSrc, source.AsSlice()))}
}

func routeIPv4() table {
	return encode(3, linkUp(), addAddress(afInet, cellIPv4(), 32), defaultRoute(afInet, cellIPv4()))
}

func routeIPv6() table {
	return encode(2, addAddress(afInet6, cellIPv6(), 128), defaultRoute(afInet6, cellIPv6()))
}

// nflogBind binds the log group to the socket that sends it and asks for each
// packet's head at once.
func nflogBind() table {
	head := []byte{0, 0, 0, logGroup} // nfgenmsg: AF_UNSPEC, version 0, group (big endian)
	config := func(attributes ...[]byte) message {
		return message{nfulnlMsgConfig, 0, append(append([]byte{}, head...), concat(attributes...)...)}
	}
	return encode(2,
		config(attribute(nfulaCfgCmd, []byte{nfulnlCfgCmdBind})),
		config(attribute(nfulaCfgMode, []byte{0, 0, 0, logCopyRange, nfulnlCopyPacket, 0}),
			attribute(nfulaCfgQth, []byte{0, 0, 0, 1}),
			attribute(nfulaCfgTimeout, []byte{0, 0, 0, 1})),
	)
}
