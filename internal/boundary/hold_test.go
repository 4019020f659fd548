package boundary

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/route"
)

// waiter is an Arrival that tells what it was answered.
type waiter struct{ answer chan flow.Reason }

func (w waiter) Refuse(why flow.Reason, _ string) { w.answer <- why }

func (w waiter) Open() net.Conn {
	w.answer <- flow.None
	a, b := net.Pipe()
	_ = b.Close()
	return a
}

// holds is a gate whose rule for a.test asks, and waits so long.
func holds(t *testing.T, hold time.Duration) (*Gate, *memory, func(...policy.Answer)) {
	t.Helper()
	m := &memory{}
	g := &Gate{Recorder: m, Refusals: NewRefusals(m, time.Now), Internet: &place{}, Flows: 100, Now: time.Now, Identity: Identity{Cell: "c"}}
	install := func(answers ...policy.Answer) {
		t.Helper()
		p := policy.Policy{Version: "v", Answers: answers, Ceiling: policy.Ceiling{NoFloor: true}, Rules: []policy.Rule{
			{ID: "ask", Name: "a.test", Ports: right.Ports{{First: 443, Last: 443}}, TCP: true, UDP: true, Ask: true, Hold: hold}}}
		if err := g.Install(p); err != nil {
			t.Fatal(err)
		}
	}
	install()
	return g, m, install
}

func (g *Gate) serves(ctx context.Context, n int) chan flow.Reason {
	w := waiter{make(chan flow.Reason, n)}
	for range n {
		go g.Serve(ctx, flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.H1, Transport: flow.TCP, Name: "a.test", Port: 443, Count: 1}, w)
	}
	return w.answer
}

func (g *Gate) held(t *testing.T, n int) {
	t.Helper()
	for late := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
		g.holding.mu.Lock()
		now := g.holding.n
		g.holding.mu.Unlock()
		if now == n {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%d flows wait, want %d", now, n)
		}
	}
}

func yes(id string, once bool) policy.Answer {
	return policy.Answer{ID: id, Name: "a.test", Port: 443, Transport: flow.TCP, Allow: true, Once: once}
}

// BC-47, B140: a flow waits for the answer, which is a policy; as many as may wait, and one
// more is refused at once. Nothing opens, and nothing is recorded as opening, before.
func TestBC47Hold(t *testing.T) {
	g, m, install := holds(t, time.Minute)
	answers := g.serves(t.Context(), HeldFlows)
	g.held(t, HeldFlows)
	if why := <-g.serves(t.Context(), 1); why != flow.ApprovalNeeded {
		t.Errorf("one too many: %v", why)
	}
	if err := g.Refusals.Flush(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	var held uint64
	for _, r := range m.all() {
		switch {
		case r.Kind == Held && r.Decision == "ask" && r.Verdict.Reason == flow.ApprovalNeeded:
			held += r.Request.Count
		case r.Kind != Denied:
			t.Errorf("%+v", r)
		}
	}
	if held != HeldFlows {
		t.Errorf("%d are recorded as held", held)
	}
	install(yes("approval-x", false))
	for range HeldFlows {
		if why := <-answers; why != flow.None {
			t.Errorf("after the yes: %v", why)
		}
	}
	g.held(t, 0)
	g.Wait()
}

// Expiry denies; so does a no, a policy without the rule, and the end of the cell.
func TestHoldEnds(t *testing.T) {
	g, _, _ := holds(t, 30*time.Millisecond)
	begin := time.Now()
	if why := <-g.serves(t.Context(), 1); why != flow.ApprovalNeeded || time.Since(begin) < 30*time.Millisecond {
		t.Errorf("%v after %s", why, time.Since(begin))
	}
	for what, end := range map[string]struct {
		do   func(*Gate, func(...policy.Answer), context.CancelFunc)
		want flow.Reason
	}{
		"no": {func(_ *Gate, install func(...policy.Answer), _ context.CancelFunc) {
			a := yes("x", false)
			a.Allow = false
			install(a)
		}, flow.ApprovalDenied},
		"no rule": {func(g *Gate, _ func(...policy.Answer), _ context.CancelFunc) {
			_ = g.Install(policy.Policy{Version: "w"})
		}, flow.NotOnAllowlist},
		"end": {func(_ *Gate, _ func(...policy.Answer), end context.CancelFunc) { end() }, flow.Revoked},
	} {
		g, _, install := holds(t, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		answers := g.serves(ctx, 3)
		g.held(t, 3)
		end.do(g, install, cancel)
		for range 3 {
			if why := <-answers; why != end.want {
				t.Errorf("%s: %v, want %v", what, why, end.want)
			}
		}
		cancel()
		g.Wait()
	}
}

// A yes for one flow lets one of those that wait through; the others wait on.
func TestHoldOnce(t *testing.T) {
	g, _, install := holds(t, time.Minute)
	var back atomic.Int32
	g.Back = func(flow.Request, string) { back.Add(1) }
	answers := g.serves(t.Context(), 4)
	g.held(t, 4)
	install(yes("approval-x", true))
	if why := <-answers; why != flow.None {
		t.Errorf("%v", why)
	}
	g.held(t, 3)
	no := yes("approval-y", false)
	no.Allow = false
	used := yes("approval-x", true)
	used.Used = true
	install(used, no)
	for range 3 {
		if why := <-answers; why != flow.ApprovalDenied {
			t.Errorf("%v", why)
		}
	}
	g.Wait()
	if back.Load() != 0 {
		t.Error("an answer that opened a flow was given back")
	}
}

// What the kernel holds is judged like any other flow, and recorded at its first attempt.
func TestHoldInTheKernel(t *testing.T) {
	g, m, install := holds(t, time.Minute)
	e := route.Refusal{Transport: flow.TCP, Dst: netip.MustParseAddrPort("100.64.0.1:443"), From: 7, Held: true}
	if v := g.Hold(e, "a.test", true); !Waits(v) || v.Hold != time.Minute {
		t.Errorf("%+v", v)
	}
	if v := g.Hold(e, "a.test", false); !Waits(v) {
		t.Errorf("%+v", v)
	}
	if v := g.Hold(e, "b.test", true); v.Refusal() != flow.NotOnAllowlist {
		t.Errorf("%+v", v)
	}
	install(yes("approval-x", false))
	if v := g.Hold(e, "a.test", true); !v.Allowed() {
		t.Errorf("%+v", v)
	}
	if err := g.Refusals.Flush(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if all := m.all(); len(all) != 1 || all[0].Kind != Held || all[0].Request.Count != 1 {
		t.Errorf("%+v", all)
	}
}
