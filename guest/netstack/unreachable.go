package netstack

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// ttl of what we send: it goes one hop.
const ttl = 64

// unreachable tells src that nothing is at dst (G54): an ICMP port unreachable for a
// datagram that has been taken already, since the boundary was asked meanwhile.
func (s *Stack) unreachable(src, dst netip.AddrPort) {
	protocol, packet := header.IPv4ProtocolNumber, unreachable4(src, dst)
	if !dst.Addr().Is4() {
		protocol, packet = header.IPv6ProtocolNumber, unreachable6(src, dst)
	}
	_ = s.inner.WriteRawPacket(nic, protocol, buffer.MakeWithData(packet)) // a device that is gone has nobody to tell
}

// unreachable4 is a packet from dst to src that quotes the head of one from src to dst.
func unreachable4(src, dst netip.AddrPort) []byte {
	const ip, icmp = header.IPv4MinimumSize, header.ICMPv4MinimumSize
	packet := make([]byte, ip+icmp+ip+header.UDPMinimumSize)
	encode4(packet, len(packet), header.ICMPv4ProtocolNumber, dst.Addr(), src.Addr())
	message := header.ICMPv4(packet[ip:])
	message.SetType(header.ICMPv4DstUnreachable)
	message.SetCode(header.ICMPv4PortUnreachable)
	quoted := packet[ip+icmp:]
	encode4(quoted, len(quoted), header.UDPProtocolNumber, src.Addr(), dst.Addr())
	header.UDP(quoted[ip:]).Encode(&header.UDPFields{SrcPort: src.Port(), DstPort: dst.Port(), Length: header.UDPMinimumSize})
	message.SetChecksum(header.ICMPv4Checksum(message, 0))
	return packet
}

func encode4(b []byte, length int, protocol tcpip.TransportProtocolNumber, from, to netip.Addr) {
	h := header.IPv4(b)
	h.Encode(&header.IPv4Fields{TotalLength: uint16(length), TTL: ttl, Protocol: uint8(protocol), SrcAddr: tcpip.AddrFromSlice(from.AsSlice()), DstAddr: tcpip.AddrFromSlice(to.AsSlice())})
	h.SetChecksum(^h.CalculateChecksum())
}

func unreachable6(src, dst netip.AddrPort) []byte {
	const ip, icmp = header.IPv6MinimumSize, header.ICMPv6DstUnreachableMinimumSize
	packet := make([]byte, ip+icmp+ip+header.UDPMinimumSize)
	from, to := tcpip.AddrFromSlice(dst.Addr().AsSlice()), tcpip.AddrFromSlice(src.Addr().AsSlice())
	encode6(packet, len(packet)-ip, header.ICMPv6ProtocolNumber, from, to)
	message := header.ICMPv6(packet[ip:])
	message.SetType(header.ICMPv6DstUnreachable)
	message.SetCode(header.ICMPv6PortUnreachable)
	quoted := packet[ip+icmp:]
	encode6(quoted, header.UDPMinimumSize, header.UDPProtocolNumber, to, from)
	header.UDP(quoted[ip:]).Encode(&header.UDPFields{SrcPort: src.Port(), DstPort: dst.Port(), Length: header.UDPMinimumSize})
	message.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: message, Src: from, Dst: to}))
	return packet
}

func encode6(b []byte, length int, protocol tcpip.TransportProtocolNumber, from, to tcpip.Address) {
	header.IPv6(b).Encode(&header.IPv6Fields{PayloadLength: uint16(length), TransportProtocol: protocol, HopLimit: ttl, SrcAddr: from, DstAddr: to})
}
