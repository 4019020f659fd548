// Package netstack is a user-space network on a tun device that takes every address
// and carries each flow to the boundary.
//
// Its laws:
//   - A SYN is answered only after the boundary has said yes: a refusal, a failed dial
//     and an absent boundary are all a reset on the SYN (guest.md, G50).
//   - It decides nothing. What has a name by virtual DNS is asked for by name, all else
//     by address.
//   - What is not TCP, UDP or a question to the resolver is not answered (G54).
package netstack

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/nested"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"skep.dev/skep/guest/channel"
	"skep.dev/skep/internal/route"
)

// MTU of the tun device, in bytes (G23).
const MTU = 65520

// Bounds (G51, G53).
const (
	MaxAttempts = 1024
	bufferSize  = 1 << 20 // of one direction of a flow

	// linger is how long an end that was closed first answers for itself. No segment is late on
	// a device, and the agent's kernel takes a port again at once, after some thousand flows the
	// same one to the same server: its SYN would wait for the minute that is usual.
	linger = 10 * time.Millisecond
)

const nic = 1

// Stack carries flows until its device is gone.
type Stack struct {
	boundary channel.Boundary
	resolver *route.Resolver
	names    *route.Table
	udp      bool

	inner    *stack.Stack
	attempts atomic.Int64
	refused  refusals
}

// New takes over an open tun device, non-blocking. Without udp only questions to the
// resolver are answered; any other datagram is ICMP port unreachable.
func New(tun int, boundary channel.Boundary, resolver *route.Resolver, udpOn bool) (*Stack, error) {
	s := &Stack{boundary: boundary, resolver: resolver, names: resolver.Table, udp: udpOn}
	s.inner = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	link, err := fdbased.New(&fdbased.Options{FDs: []int{tun}, MTU: MTU, RXChecksumOffload: true})
	if err != nil {
		return nil, fmt.Errorf("read the tun device: %w", err)
	}
	quiet := &silent{}
	quiet.Init(link, quiet)
	if err := s.configure(quiet); err != nil {
		return nil, err
	}
	s.inner.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(s.inner, bufferSize, 8*MaxAttempts, s.takeTCP).HandlePacket)
	s.inner.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(s.inner, s.takeUDP).HandlePacket)
	return s, nil
}

func (s *Stack) configure(link stack.LinkEndpoint) error {
	var failed tcpip.Error
	step := func(err tcpip.Error) {
		if failed == nil {
			failed = err
		}
	}
	step(s.inner.CreateNIC(nic, link))
	step(s.inner.SetPromiscuousMode(nic, true)) // every address is ours
	step(s.inner.SetSpoofing(nic, true))        // and answers come from it
	s.inner.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	sack, moderate, linger := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true), tcpip.TCPTimeWaitTimeoutOption(linger)
	step(s.inner.SetTransportProtocolOption(tcp.ProtocolNumber, &linger))
	step(s.inner.SetTransportProtocolOption(tcp.ProtocolNumber, &sack))
	step(s.inner.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate))
	step(s.inner.SetTransportProtocolOption(tcp.ProtocolNumber, &tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: bufferSize, Max: bufferSize}))
	step(s.inner.SetTransportProtocolOption(tcp.ProtocolNumber, &tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: bufferSize, Max: bufferSize}))
	if failed != nil {
		return fmt.Errorf("set the network stack up: %s", failed)
	}
	return nil
}

// Close ends every flow.
func (s *Stack) Close() { s.inner.Close() }

// silent drops ICMP from the agent: an echo of ours would say that an address exists.
type silent struct{ nested.Endpoint }

// DeliverNetworkPacket passes everything else on.
func (e *silent) DeliverNetworkPacket(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	if isICMP(protocol, pkt) {
		return
	}
	e.Endpoint.DeliverNetworkPacket(protocol, pkt)
}

// isICMP says of a whole packet whether it is ICMP, or nothing that can be read.
func isICMP(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) bool {
	switch protocol {
	case header.IPv4ProtocolNumber:
		if b, ok := pkt.Data().PullUp(header.IPv4MinimumSize); ok {
			return header.IPv4(b).TransportProtocol() == header.ICMPv4ProtocolNumber
		}
	case header.IPv6ProtocolNumber:
		if b, ok := pkt.Data().PullUp(header.IPv6MinimumSize); ok {
			return header.IPv6(b).NextHeader() == uint8(header.ICMPv6ProtocolNumber)
		}
	}
	return true
}

func addrOf(a tcpip.Address) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return addr.Unmap()
}
