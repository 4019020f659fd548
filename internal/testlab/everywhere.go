package testlab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"github.com/mdlayher/netlink"
)

// Addresses that a lab always has.
var (
	// Resolver is the name server of /etc/resolv.conf.
	Resolver = netip.MustParseAddr("9.9.9.9")
	// Own and Own6 are the lab host's own public addresses, on its only device (B105).
	Own  = netip.MustParseAddr("77.88.55.60")
	Own6 = netip.MustParseAddr("2a02:6b8:a::a")
	// Metadata is where clouds serve a machine's own credentials.
	Metadata = netip.MustParseAddr("169.254.169.254")
)

// Numbers of rtnetlink(7).
const (
	newLink, newAddr, newRoute = 16, 20, 24
	loopbackIndex, up          = 1, 1
	inet, inet6                = 2, 10
	tableLocal, protoBoot      = 255, 3
	scopeHost, typeLocal       = 254, 2
	attrAddress, attrLocal     = 1, 2
	attrOutDevice              = 4
	noDAD                      = 2
)

// everywhereIsHere makes every address one of this namespace, by one local route
// for each family, and lets anybody in it bind any address and port.
func everywhereIsHere() error {
	conn, err := netlink.Dial(0, nil)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer func() { _ = conn.Close() }()
	lo := binary.NativeEndian.AppendUint32(nil, loopbackIndex)
	send := func(what string, kind netlink.HeaderType, body ...[]byte) error {
		m := netlink.Message{Header: netlink.Header{
			Type: kind, Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl,
		}}
		if kind == newLink {
			m.Header.Flags = netlink.Request | netlink.Acknowledge
		}
		for _, part := range body {
			m.Data = append(m.Data, part...)
		}
		if _, err := conn.Execute(m); err != nil {
			return fmt.Errorf("set up the lab's network: %s: %w", what, err)
		}
		return nil
	}
	flags := binary.NativeEndian.AppendUint32(nil, up)
	if err := send("bring lo up", newLink, []byte{0, 0, 0, 0}, lo, flags, flags); err != nil {
		return err
	}
	for _, f := range []struct {
		family byte
		own    netip.Addr
	}{{inet, Own}, {inet6, Own6}} {
		bits := byte(f.own.BitLen())
		raw := f.own.AsSlice()
		address := [][]byte{{f.family, bits, noDAD, 0}, lo, attribute(attrLocal, raw), attribute(attrAddress, raw)}
		if err := send("add "+f.own.String(), newAddr, address...); err != nil {
			return err
		}
		route := []byte{f.family, 0, 0, 0, tableLocal, protoBoot, scopeHost, typeLocal, 0, 0, 0, 0}
		if err := send("route all addresses here", newRoute, route, attribute(attrOutDevice, lo)); err != nil {
			return err
		}
	}
	for file, value := range map[string]string{
		"ipv4/ip_unprivileged_port_start": "0", "ipv4/ip_nonlocal_bind": "1", "ipv6/ip_nonlocal_bind": "1",
	} {
		if err := os.WriteFile("/proc/sys/net/"+file, []byte(value), 0o644); err != nil {
			return fmt.Errorf("set up the lab's network: %w", err)
		}
	}
	return nil
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
