package attack

import (
	"slices"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// TestN20ChangedAddress: whatever a thread does to the address of a datagram while the call
// is made, and however many messages one call has, each is judged where it goes (B11).
func TestN20ChangedAddress(t *testing.T) { testlab.Test(t, changedAddress) }

func changedAddress(t *testing.T, lab *testlab.Lab) {
	const allowed, forbidden, port = "1.1.1.1", "9.9.9.9", "7000"
	lab.UDPEcho(allowed + ":" + port)
	lab.UDPEcho(forbidden + ":" + port)
	for _, o := range (attack{technique: "messages", outside: []string{allowed, forbidden, port}}).tryOutside(t) {
		if o.verdict != escaped {
			t.Errorf("%s does not succeed outside, so it proves nothing: %s", o.name, o.why)
		}
	}
	before := len(lab.Datagrams())
	s := install(t, lab)
	s.start()
	for _, i := range s.attack(s.profile("net: [{ip: "+allowed+", ports: ["+port+"], transports: [udp]}]\n"), "messages", allowed, forbidden, port) {
		if i.verdict != held {
			t.Errorf("%s: %s", i.name, i.why)
		}
	}
	arrived := lab.Datagrams()[before:]
	if !slices.ContainsFunc(arrived, func(d testlab.Datagram) bool { return d.To.Addr().String() == allowed }) {
		t.Error("nothing arrived where it may: the attack proves nothing")
	}
	for _, d := range arrived {
		if d.To.Addr().String() == forbidden {
			t.Fatalf("%q arrived at %s", d.Payload, d.To)
		}
	}
}
