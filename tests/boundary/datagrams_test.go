package boundary

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
)

// datagrams sends a datagram to each of At from one socket that is connected to nothing,
// and says of each how its answer came.
func (a attempt) datagrams() (string, error) {
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	var got []string
	for _, at := range strings.Fields(a.At) {
		to, err := net.ResolveUDPAddr("udp", at)
		if err != nil {
			return strings.Join(got, " "), err
		}
		got = append(got, swapped(c, to.AddrPort(), patience))
	}
	return strings.Join(got, " "), nil
}

// swapped sends to one address, and is "ok" where the same comes back from it.
func swapped(c *net.UDPConn, to netip.AddrPort, within time.Duration) string {
	if _, err := c.WriteToUDPAddrPort([]byte(to.String()), to); err != nil {
		return short(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(within))
	back := make([]byte, 100)
	n, from, err := c.ReadFromUDPAddrPort(back)
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	switch {
	case err != nil:
		return short(err)
	case from != netip.AddrPortFrom(to.Addr().Unmap(), to.Port()) || string(back[:n]) != to.String():
		return fmt.Sprintf("%q-from-%s", back[:n], from)
	}
	return "ok"
}

// pastTheBox speaks to the box's own socket, to At's port at addresses that At's rule does
// not have, and to a closed one, from sources that have an allowed flow to At or use the
// port of one again. It says what was answered.
func (a attempt) pastTheBox() (string, error) {
	allowed, err := netip.ParseAddrPort(a.At)
	if err != nil {
		return "", err
	}
	past := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:65002"), netip.MustParseAddrPort("127.0.0.2:65002"), netip.MustParseAddrPort("100.127.255.254:65002"), netip.AddrPortFrom(netip.MustParseAddr(a.Say), allowed.Port())}
	var got []string
	for _, source := range []string{"0.0.0.0", "127.0.0.1", "127.0.0.3", "100.127.255.254"} {
		port := 0
		for range 2 { // the second time from the port of a flow whose socket is gone
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(source), Port: port})
			if err != nil {
				return strings.Join(got, " "), err
			}
			port = c.LocalAddr().(*net.UDPAddr).Port
			for _, to := range past {
				if how := swapped(c, to, 100*time.Millisecond); how == "ok" || strings.Contains(how, "from") {
					got = append(got, source+"-to-"+to.String()+"-"+how)
				}
			}
			if how := swapped(c, allowed, patience); how != "ok" {
				got = append(got, source+"-to-"+allowed.String()+"-"+how)
			}
			_ = c.Close()
		}
	}
	return strings.Join(got, " "), nil
}

// TestBG7InACell: where no rule has datagrams, one fails at the send and none leaves.
func TestBG7InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ok.test", public4)
		lab.UDPEcho(public4 + ":7080")
		h := open(t, lab, "net: [{name: ok.test, ports: [7080]}]\n")
		for _, r := range h.try(attempt{How: "udp", At: "ok.test:7080"}, attempt{How: "udp", At: public4 + ":7080"}, attempt{How: "udp", At: "8.8.8.8:443"}) {
			if r.Err != "EPERM" && r.Err != "ECONNREFUSED" {
				t.Errorf("%+v", r)
			}
		}
		h.refused(h.record(), "ok.test:7080", "transport-not-allowed")
		h.refused(h.record(), public4+":7080", "ip-not-on-allowlist")
		if d := lab.Datagrams(); len(d) != 0 || lab.Asked("ok.test", "A") != 0 {
			t.Errorf("%v arrived, questions %v", d, lab.Queries())
		}
	})
}

// TestBG8BU3BU4InACell: an answer comes from the address that was written to, in both
// families and by name, for several destinations of one socket; what no rule has, or has
// for TCP alone, fails at the send, is recorded, and does not arrive.
func TestBG8BU3BU4InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("four.test", public4)
		lab.Host("six.test", public6)
		lab.Host("tcp.test", "93.184.216.35")
		for _, at := range []string{public4 + ":7080", "[" + public6 + "]:7080", "93.184.216.35:7080", "8.8.8.8:7080"} {
			lab.UDPEcho(at)
		}
		h := open(t, lab, "net: [{name: four.test, ports: [7080], udp: true, id: by-name}, {name: six.test, ports: [7080], transports: [udp]}, {ip: "+public4+
			", ports: [7080], transports: [udp]}, {cidr: \"2606:2800::/32\", ports: [7080], transports: [udp]}, {name: tcp.test, ports: [7080]}]\n")
		results := h.try(attempt{How: "datagrams", At: "four.test:7080 six.test:7080 " + public4 + ":7080 [" + public6 + "]:7080 four.test:7080"},
			attempt{How: "datagrams", At: "four.test:7080 tcp.test:7080 8.8.8.8:7080 four.test:7081 four.test:7080"},
			attempt{How: "udp", At: "tcp.test:7080"}, attempt{How: "udp", At: "8.8.8.8:7080"}, attempt{How: "udp", At: "four.test:7080", Say: strings.Repeat("x", 1400)})
		for i, want := range []string{"ok ok ok ok ok", "ok EPERM EPERM EPERM ok"} {
			if results[i].Got != want {
				t.Errorf("%+v, want %s", results[i], want)
			}
		}
		if results[2].reached() || results[3].reached() || results[4].Err != "" {
			t.Errorf("%+v", results[2:])
		}
		record := h.record()
		h.refused(record, "tcp.test:7080", "transport-not-allowed")
		h.refused(record, "8.8.8.8:7080", "ip-not-on-allowlist")
		h.refused(record, "four.test:7081", "port-not-allowed")
		outcomes := 0
		for _, e := range record {
			if e.Kind == "flow.outcome" && e.Body["transport"] == "udp" {
				outcomes++
			}
		}
		if outcomes != 4+1+1 { // the sockets of the cell, and their destinations
			t.Errorf("%d flows of datagrams are recorded: %v", outcomes, record)
		}
		for _, d := range lab.Datagrams() {
			if a := d.To.Addr().String(); a != public4 && a != public6 {
				t.Errorf("a datagram arrived at %s", d.To)
			}
		}
	})
}

// TestDatagramsPastTheBox: the box's socket takes nothing that was not turned to it, from
// whatever source, and no source gets more than its own destination.
func TestDatagramsPastTheBox(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		const other = "93.184.216.35"
		lab.UDPEcho(public4 + ":7080")
		lab.UDPEcho(other + ":7080")
		h := open(t, lab, "net: [{ip: "+public4+", ports: [7080], transports: [udp]}]\n")
		if r := h.try(attempt{How: "past the box", At: public4 + ":7080", Say: other})[0]; r.Err != "" || r.Got != "" {
			t.Errorf("%+v", r)
		}
		d := lab.Datagrams()
		if slices.ContainsFunc(d, func(d testlab.Datagram) bool { return string(d.Payload) != d.To.String() }) || len(d) != 8 {
			t.Errorf("%d datagrams arrived: %v", len(d), d)
		}
		aimed := 0
		for _, e := range h.record() {
			if e.Body["reason"] == "no-original-destination" && e.Body["transport"] == "udp" {
				aimed++
			}
		}
		if aimed == 0 {
			t.Error("no datagram to the box's own socket is recorded")
		}
	})
}
