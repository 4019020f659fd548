package internet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

func addrs(s ...string) (out []netip.Addr) {
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestZeroPermitOpensNothing(t *testing.T) {
	if _, err := (&Dest{}).Open(context.Background(), boundary.Permit{}); !errors.Is(err, errNoPermit) {
		t.Error(err)
	}
}

// reach opens a flow, says something and expects it back.
func (l *lab) reach(dest string, port uint16) boundary.Record {
	l.t.Helper()
	c := l.connect(dest, port)
	if _, err := io.WriteString(c, "hello"); err == nil {
		_ = c.CloseWrite()
		got, err := io.ReadAll(c)
		if err == nil && string(got) != "hello" {
			l.t.Errorf("echo gave %q", got)
		}
	}
	return l.last()
}

// BX-1 to BX-3.
func TestBX1OnlyKeptAddressesAreDialed(t *testing.T) {
	port, seen := serve(t, echo)
	z := &zone{answers: map[string][]netip.Addr{"x.test.": addrs("127.0.0.1")}}
	rule := policy.Rule{ID: "x", Name: "x.test", Ports: one(t, port), TCP: true}
	l := newLab(t, rule)
	l.dest.Set([]netip.AddrPort{z.serve(t)}, nil)
	if r := l.reach("x.test", port); r.Verdict.Reason != flow.ResolvedAddressDenied || r.Dropped != 1 || seen() != 0 {
		t.Errorf("%+v, %d dials", r, seen())
	}
	exception := policy.Policy{Rules: []policy.Rule{rule}, Ceiling: l.policy.Ceiling, Resolved: []policy.Range{{CIDR: netip.MustParsePrefix("127.0.0.0/8"), Ports: one(t, port)}}}
	l.install(exception)
	if r := l.reach("x.test", port); r.Decision != "allow" || r.Address.Port() != port || r.Up != 5 || r.Down != 5 {
		t.Errorf("%+v", r)
	}
	if r := l.reach("127.0.0.1", port); r.Verdict.Reason != flow.IPNotOnAllowlist { // BX-2
		t.Errorf("%+v", r)
	}
	exception.Rules = []policy.Rule{{ID: "any", Name: policy.AnyName, Ports: one(t, port), TCP: true}}
	l.install(exception)
	if r := l.reach("x.test", port); r.Decision != "allow" { // BX-3
		t.Errorf("%+v", r)
	}
	l.install(policy.Policy{Rules: []policy.Rule{rule, {ID: "lit", IP: addrs("127.0.0.1")[0], Ports: one(t, port), TCP: true}}, Ceiling: l.policy.Ceiling})
	if r := l.reach("x.test", port); r.Decision != "allow" {
		t.Errorf("a literal rule for that port admits it: %+v", r)
	}
}

// BX-4: of mixed answers only the excepted is dialed; `mixed: refuse` denies.
func TestBX4Mixed(t *testing.T) {
	port, seen := serve(t, echo)
	z := &zone{answers: map[string][]netip.Addr{"x.test.": addrs("169.254.169.254", "10.0.0.1", "127.0.0.1")}}
	l := newLab(t)
	p := policy.Policy{Rules: []policy.Rule{{ID: "x", Name: "x.test", Ports: one(t, port), TCP: true}},
		Ceiling: policy.Ceiling{NoFloor: true}, Resolved: []policy.Range{{CIDR: netip.MustParsePrefix("127.0.0.0/8"), Ports: one(t, port)}}}
	l.install(p)
	l.dest.Set([]netip.AddrPort{z.serve(t)}, nil)
	if r := l.reach("x.test", port); r.Decision != "allow" || r.Dropped != 2 || r.Address.Addr().String() != "127.0.0.1" {
		t.Errorf("%+v", r)
	}
	p.Ceiling.Mixed = true
	l.install(p)
	if r := l.reach("x.test", port); r.Verdict.Reason != flow.ResolvedAddressDenied || seen() != 1 {
		t.Errorf("%+v", r)
	}
}

// BX-5 and BC-21: one question of each kind, and none for what is denied.
func TestBX5ResolvedOnce(t *testing.T) {
	port, _ := serve(t, echo)
	z := &zone{answers: map[string][]netip.Addr{"x.test.": addrs("127.0.0.1")}}
	l := newLab(t)
	l.install(policy.Policy{Rules: []policy.Rule{{ID: "x", Name: "x.test", Ports: one(t, port), TCP: true}},
		Ceiling: policy.Ceiling{NoFloor: true}, Resolved: []policy.Range{{CIDR: netip.MustParsePrefix("127.0.0.0/8"), Ports: one(t, port)}}})
	l.dest.Set([]netip.AddrPort{z.serve(t)}, nil)
	l.reach("denied.test", port)
	if n := z.questions(); n != 0 {
		t.Errorf("a denied name was asked for %d times", n)
	}
	l.reach("x.test", port)
	if n := z.questions(); n != 2 {
		t.Errorf("%d questions, one A and one AAAA were due", n)
	}
	z.mu.Lock()
	z.big = true
	z.mu.Unlock()
	if r := l.reach("x.test", port); r.Decision != "allow" {
		t.Errorf("a truncated answer is asked for over TCP: %+v", r)
	}
}

// BX-6: three kept, two dead; the third is used.
func TestBX6DeadAddresses(t *testing.T) {
	port, _ := serveAt(t, "127.0.0.3:0", echo)
	l := newLab(t, policy.Rule{ID: "x", Name: "x.test", Ports: one(t, port), TCP: true, Resolve: addrs("127.0.0.1", "127.0.0.2", "127.0.0.3")})
	if r := l.reach("x.test", port); r.Decision != "allow" || r.Address.Addr().String() != "127.0.0.3" {
		t.Errorf("%+v", r)
	}
}

// BC-27 and BC-28.
func TestFailures(t *testing.T) {
	ln := listen(t, "127.0.0.1:0")
	port := uint16(ln.Addr().(*net.TCPAddr).Port)
	ln.Close()
	z := &zone{answers: map[string][]netip.Addr{}}
	l := newLab(t, local(t, "closed.test", port), policy.Rule{ID: "x", Name: "gone.test", Ports: one(t, port), TCP: true})
	l.dest.Set([]netip.AddrPort{z.serve(t)}, nil)
	if r := l.reach("closed.test", port); r.Verdict.Reason != flow.DialFailed || r.Decision != "fail" || r.Address.IsValid() {
		t.Errorf("%+v", r)
	}
	if r := l.reach("gone.test", port); r.Verdict.Reason != flow.ResolveFailed || r.Decision != "fail" {
		t.Errorf("%+v", r)
	}
	l.dest.Set(nil, nil)
	if r := l.reach("gone.test", port); r.Verdict.Reason != flow.ResolveFailed {
		t.Errorf("%+v", r)
	}
	if dialDetail(&net.OpError{Err: context.DeadlineExceeded}) != "connection_timeout" {
		t.Error("detail of a timeout")
	}
}

func TestHostsFileCountsAsAnswer(t *testing.T) {
	port, _ := serve(t, echo)
	l := newLab(t, policy.Rule{ID: "x", Name: "h.test", Ports: one(t, port), TCP: true})
	l.dest.Set(nil, map[string][]netip.Addr{"h.test": addrs("127.0.0.1")})
	if r := l.reach("h.test", port); r.Verdict.Reason != flow.ResolvedAddressDenied {
		t.Errorf("it is checked like any other: %+v", r)
	}
}

func TestKeepOrdersFamiliesInTurn(t *testing.T) {
	l := newLab(t, policy.Rule{ID: "x", Name: "x.test", Ports: one(t, 443), TCP: true})
	var got []netip.Addr
	l.gate.Internet = opener(func(p boundary.Permit) {
		got, _ = keep(p, addrs("1.1.1.1", "1.0.0.1", "2606:4700::1", "::ffff:1.1.1.1", "10.0.0.1"))
	})
	l.reach("x.test", 443)
	want := addrs("2606:4700::1", "1.1.1.1", "1.0.0.1")
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%v", got)
	}
}

// opener is a destination that only looks at the permit.
type opener func(boundary.Permit)

func (o opener) Open(_ context.Context, p boundary.Permit) (boundary.Upstream, error) {
	o(p)
	return nil, &boundary.Failure{Reason: flow.DialFailed}
}
