package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Numbers of linux/netfilter/nfnetlink_conntrack.h.
const (
	ctMsgGet                            = 1<<8 | 1 // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET
	ctaTupleBack                        = 2
	ctaTupleIP, ctaTupleProto           = 1, 2
	ctaIPv4Src, ctaIPv4Dst              = 1, 2
	ctaIPv6Src, ctaIPv6Dst              = 3, 4
	ctaProtoNum, ctaSrcPort, ctaDstPort = 1, 2, 3
	nested                              = 1 << 15
)

// writeFlows writes the messages that ask conntrack for the flow of a datagram, by its
// reply tuple: from the box's own socket to where the datagram came from, which the
// warden fills in (B12).
func writeFlows(out *bytes.Buffer) error {
	holes := map[string][2]int{}
	for _, f := range []struct {
		name     string
		family   byte
		loopback netip.Addr
		src, dst uint16
	}{
		{"flow4", afInet, netip.AddrFrom4([4]byte{127, 0, 0, 1}), ctaIPv4Src, ctaIPv4Dst},
		{"flow6", afInet6, netip.IPv6Loopback(), ctaIPv6Src, ctaIPv6Dst},
	} {
		// Bytes that stand nowhere else in the message mark the holes, which are at the same
		// places for both families: what is as long for both comes first.
		address, port := bytes.Repeat([]byte{0xa5}, f.loopback.BitLen()/8), []byte{0x5a, 0x5b}
		t := encode(0, message{ctMsgGet, 0, concat([]byte{f.family, 0, 0, 0}, attribute(nested|ctaTupleBack, concat(
			attribute(nested|ctaTupleProto, concat(
				attribute(ctaProtoNum, []byte{protoUDP}),
				attribute(ctaSrcPort, binary.BigEndian.AppendUint16(nil, portUDP)),
				attribute(ctaDstPort, port))),
			attribute(nested|ctaTupleIP, concat(attribute(f.dst, address), attribute(f.src, f.loopback.AsSlice()))))))})
		if bytes.Count(t.bytes, address) != 1 || bytes.Count(t.bytes, port) != 1 {
			return errors.New("the message for a flow has no place for its address or port")
		}
		holes[f.name] = [2]int{bytes.Index(t.bytes, address), bytes.Index(t.bytes, port)}
		clear(t.bytes[holes[f.name][0]:][:len(address)])
		clear(t.bytes[holes[f.name][1]:][:len(port)])
		writeBytes(out, f.name, "asks for the flow whose answers go from the box to an address and port of the cell", t)
	}
	if holes["flow4"] != holes["flow6"] {
		return fmt.Errorf("the messages for flows have their holes at different places: %v", holes)
	}
	fmt.Fprintf(out, "enum { flow_type = 4, flow_flags = 6, flow_address = %d, flow_port = %d };\n\n", holes["flow4"][0], holes["flow4"][1])
	return nil
}
