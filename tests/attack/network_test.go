package attack

import (
	"net/netip"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/testlab"
)

// TestN19AddressesWithoutARule: a cell that no rule opens reaches no address of the
// host or beyond, in no way that a stream or datagram can be sent; and nothing of
// it arrives (B11 to B16).
func TestN19AddressesWithoutARule(t *testing.T) { testlab.Test(t, addressesWithoutARule) }

func addressesWithoutARule(t *testing.T, lab *testlab.Lab) {
	var args []string
	for _, at := range []string{
		"127.0.0.1:7080", "[::1]:7080", "169.254.169.254:80", "8.8.8.8:443", "8.8.8.8:53", "10.0.0.1:22", "77.88.55.60:80",
		"[fd00:ec2::254]:80", "[2606:4700:4700::1111]:443", "100.64.0.1:80", "100.127.255.253:80",
	} {
		addr := netip.MustParseAddrPort(at)
		lab.HTTP(at, nil)
		port := at[strings.LastIndex(at, ":")+1:]
		ways := []string{"tcp", "mptcp", "tfo", "udp"}
		lab.UDPEcho(at)
		for _, way := range ways {
			args = append(args, addr.Addr().String()+","+port+","+way)
		}
	}
	a := attack{technique: "network", outside: args, inside: args}
	outside := a.tryOutside(t)
	tcp, udp := len(lab.Connections()), len(lab.Datagrams())
	if tcp == 0 || udp == 0 {
		t.Fatalf("the lab saw %d connections and %d datagrams from outside of the cell", tcp, udp)
	}
	for _, o := range outside {
		if o.verdict == held {
			t.Errorf("%s does not answer outside, so it proves nothing: %s", o.name, o.why)
		}
	}
	for _, i := range a.tryInside(t, celltest.New(t)) {
		if i.verdict == escaped {
			t.Errorf("%s answers the cell", i.name)
		}
	}
	if n, m := len(lab.Connections())-tcp, len(lab.Datagrams())-udp; n != 0 || m != 0 {
		t.Errorf("%d connections and %d datagrams of the cell arrived", n, m)
	}
	if q := lab.Queries(); len(q) != 0 {
		t.Errorf("the cell's bytes reached the name server: %v", q)
	}
}
