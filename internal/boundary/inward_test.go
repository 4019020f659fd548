package boundary

import (
	"context"
	"testing"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

func delivery(port uint16, wire flow.Wire) flow.Request {
	return flow.Request{ID: flow.NewID(), Direction: flow.In, Wire: wire, Transport: flow.TCP, Addr: policy.IngressAt(), Port: port, Count: 1}
}

// B170, B171, B176: a delivery goes to the agent's own port and to no other destination, it
// has its records, and takes no place, byte or denial of what the agent does itself.
func TestDeliveries(t *testing.T) {
	rec, out, in := &memory{}, &place{}, &place{hold: make(chan struct{}), in: make(chan struct{})}
	g := gate(t, rec, out)
	g.Inward, g.Denials = in, &Denials{}
	g.Bytes = NewBytes(t.Context(), &lender{left: 100, block: 10})
	err := g.Install(policy.Policy{Version: "v", Ingress: []policy.Ingress{
		{Port: 80, ID: policy.Serves, Line: 3}, {Port: 81, ID: policy.Serves, Forward: true}, {Port: 80, ID: policy.Forward, Person: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q              flow.Request
		strips, budget bool
	}{{delivery(80, flow.H1), true, true}, {delivery(81, flow.H1), false, true}, {delivery(80, flow.Native), false, false}} {
		done := make(chan struct{})
		go func() { g.Serve(t.Context(), c.q, Connected{agent(t)}); close(done) }()
		<-in.in
		if p := in.permit; p.Strips() != c.strips || (p.Bytes() != nil) != c.budget || p.Request().Cell != "cell" {
			t.Errorf("%s over %s: %+v", c.q.Destination(), c.q.Wire, p)
		}
		if g.Open() != 1 || g.Full() != flow.None {
			t.Errorf("%d are open, %s", g.Open(), g.Full())
		}
		in.hold <- struct{}{}
		<-done
	}
	g.Serve(t.Context(), delivery(82, flow.H1), Connected{agent(t)})
	if in.opened != 3 || out.opened != 0 {
		t.Errorf("%d deliveries, %d flows", in.opened, out.opened)
	}
	all := rec.all()
	if n := len(all); n != 7 || all[0].Kind != Intent || all[1].Kind != Outcome || all[1].Up != 3 || all[1].Verdict.Rule != policy.Serves ||
		all[6].Verdict.Reason != flow.PortNotPermitted || all[6].Decision != "block" {
		t.Errorf("%d records: %+v", n, all)
	}
	if d := g.Denials.List(); len(d) != 0 {
		t.Errorf("the agent reads of a caller: %+v", d)
	}
	if !(Permit{}).Strips() {
		t.Error("the zero permit passes credentials on")
	}
	if p := (Permit{request: request("ok.test", 443), policy: &policy.Policy{}}); p.Strips() {
		t.Error("the agent's own credentials are taken out")
	}
}

// Without a way in nothing is delivered, and what is open ends when its port is taken back
// (B161, B162).
func TestDeliveriesEnd(t *testing.T) {
	g := gate(t, &memory{}, &place{})
	p := policy.Policy{Ingress: []policy.Ingress{{Port: 80, ID: policy.Serves}}}
	if err := g.Install(p); err != nil {
		t.Fatal(err)
	}
	g.Serve(t.Context(), delivery(80, flow.H1), Connected{agent(t)})
	ctx, one := g.begin(t.Context(), delivery(80, flow.H1), policy.Serves, held{g.policy.Load()})
	defer g.finish(one)
	if ctx.Err() != nil {
		t.Fatal("it ended at once")
	}
	if err := g.Install(policy.Policy{Ingress: []policy.Ingress{{Port: 81, ID: policy.Serves}}}); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() == nil {
		t.Error("a delivery outlives its right")
	}
}

// B150: so many deliveries at once, and no more; the cell's own flows are not touched.
func TestDeliveriesAreBounded(t *testing.T) {
	rec := &memory{}
	g := gate(t, rec, &place{})
	g.Inward = &place{}
	if err := g.Install(policy.Policy{Ingress: []policy.Ingress{{Port: 80, ID: policy.Serves}}}); err != nil {
		t.Fatal(err)
	}
	q := delivery(80, flow.H1)
	for range OpenIngress {
		if why := g.enter(q); why != flow.None {
			t.Fatal(why)
		}
	}
	g.Serve(context.Background(), q, Connected{agent(t)})
	if r := rec.all(); len(r) != 1 || r[0].Verdict.Reason != flow.Busy {
		t.Errorf("%+v", r)
	}
	if why := g.enter(request("ok.test", 443)); why != flow.None {
		t.Errorf("deliveries keep the agent from calling: %s", why)
	}
	g.leave(q)
	if why := g.enter(q); why != flow.None {
		t.Error(why)
	}
}
