package boundary

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// lasting is a Dest whose flows last until they are ended; it says when one has begun.
type lasting struct {
	begun chan struct{}
	at    netip.AddrPort
}

func (l *lasting) Open(context.Context, Permit) (Upstream, error) { return l, nil }
func (l *lasting) Address() netip.AddrPort                        { return l.at }
func (l *lasting) Dropped() int                                   { return 0 }
func (l *lasting) Carry(ctx context.Context, c net.Conn) End {
	l.begun <- struct{}{}
	<-ctx.Done()
	_ = c.Close()
	return End{Reason: flow.Revoked}
}

// A flow that the new policy does not allow ends, and one whose address it does not
// keep; the others are not touched (B161).
func TestSwapEndsWhatLostItsRight(t *testing.T) {
	dest := &lasting{begun: make(chan struct{}), at: netip.MustParseAddrPort("10.0.0.1:443")}
	g := gate(t, &memory{}, dest)
	p := g.Policy()
	listed := p.Rules[0]
	listed.Resolve = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	other := listed
	other.ID, other.Name = "other", "other.test"
	install := func(version string, rules ...policy.Rule) {
		t.Helper()
		p.Version, p.Rules = version, rules
		if err := g.Install(p); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(host string) chan struct{} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			g.Serve(t.Context(), request(host, 443), Connected{agent(t)})
		}()
		<-dest.begun
		return ended
	}
	living := func(ended chan struct{}) bool {
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
	install("1", listed, other)
	a, b := begin("ok.test"), begin("other.test")
	if err := g.Install(policy.Policy{Rules: []policy.Rule{{ID: "bad"}}}); err == nil || g.Policy().Version != "1" {
		t.Errorf("an invalid policy: %v", err)
	}
	install("2", other)
	<-a
	if !living(b) {
		t.Error("a flow that is still allowed has ended")
	}
	moved := other
	moved.Resolve = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
	install("3", moved)
	<-b
	if g.Wait(); len(g.living.all) != 0 {
		t.Errorf("%d flows are still judged", len(g.living.all))
	}
}

// A policy that is swapped between the decision and the opening is asked, too.
func TestSwapWhileAFlowIsOpened(t *testing.T) {
	dest := &lasting{begun: make(chan struct{}, 1), at: netip.MustParseAddrPort("192.0.2.1:443")}
	g := gate(t, &memory{}, dest)
	q := g.identify(request("ok.test", 443))
	_, decided := g.decide(q)
	if err := g.Install(policy.Policy{Version: "2"}); err != nil {
		t.Fatal(err)
	}
	ctx, one := g.begin(t.Context(), q, "", decided)
	defer g.finish(one)
	<-ctx.Done()
}
