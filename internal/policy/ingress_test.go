package policy

import (
	"net/netip"
	"testing"

	"skep.dev/skep/internal/flow"
)

func in(port uint16, wire flow.Wire) flow.Request {
	return flow.Request{Cell: "c", Direction: flow.In, Wire: wire, Transport: flow.TCP, Addr: IngressAt(), Port: port, Count: 1}
}

// B170, B172: a delivery is allowed to a port that was opened, by the way by which it was
// opened, on the cell's own loopback, and else not.
func TestIngress(t *testing.T) {
	p := Policy{Rules: []Rule{{ID: "any", Name: AnyName, Ports: ports(t, "1-65535"), TCP: true}}, Ingress: []Ingress{
		{Port: 8080, ID: Serves, Line: 7}, {Port: 8080, ID: Forward, Person: true}, {Port: 9090, ID: Forward, Person: true},
	}}
	for _, c := range []struct {
		q    flow.Request
		rule string
	}{
		{in(8080, flow.H1), Serves}, {in(8080, flow.Native), Forward}, {in(9090, flow.Native), Forward},
		{in(9090, flow.H1), ""}, {in(8081, flow.H1), ""}, {in(443, flow.Native), ""},
	} {
		v := Decide(c.q, p)
		if v.Rule != c.rule || v.Allowed() != (c.rule != "") || !v.Allowed() && v.Reason != flow.PortNotPermitted {
			t.Errorf("%s over %s: %+v", c.q.Destination(), c.q.Wire, v)
		}
		if Stands(c.q, p, c.rule) != v.Allowed() || Stands(c.q, Policy{}, c.rule) {
			t.Errorf("%s: what stands is not what is allowed", c.q.Destination())
		}
	}
	for _, at := range []string{"127.0.0.2", "::1", "10.0.0.1", "0.0.0.0"} {
		q := in(8080, flow.H1)
		q.Addr = netip.MustParseAddr(at)
		if Decide(q, p).Allowed() {
			t.Errorf("%s is allowed", at)
		}
	}
	named, datagram, out := in(8080, flow.H1), in(8080, flow.H1), in(8080, flow.H1)
	named.Name, named.Addr = "localhost", netip.Addr{}
	datagram.Transport = flow.UDP
	out.Direction = flow.Out
	for _, q := range []flow.Request{named, datagram, out} {
		if v := Decide(q, p); v.Allowed() && v.Rule != "any" {
			t.Errorf("%+v is allowed by %+v", q, v)
		}
		if _, ok := Opened(q, p); ok {
			t.Errorf("%+v is a delivery", q)
		}
	}
	for _, port := range []uint16{0, 65001, 65053} {
		q := Policy{Ingress: []Ingress{{Port: port, ID: Serves}}}
		if q.Check() == nil || Decide(in(port, flow.H1), q).Allowed() {
			t.Errorf("port %d is served", port)
		}
	}
}
