package traffic

import (
	"strconv"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/flow/limit"
)

func records(kind skepv1.FlowRecord_Kind, from, to int) (out []*skepv1.FlowRecord) {
	for i := from; i < to; i++ {
		out = append(out, &skepv1.FlowRecord{Kind: kind, Flow: strconv.Itoa(i)})
	}
	return out
}

const (
	intent  = skepv1.FlowRecord_KIND_INTENT
	outcome = skepv1.FlowRecord_KIND_OUTCOME
	denied  = skepv1.FlowRecord_KIND_DENIED
)

// take takes records that become durable or not, and gives how many were kept.
func take(c *Cell, durable bool, r []*skepv1.FlowRecord) (kept int, refused []*skepv1.RefusedFlow) {
	t := c.Take(r)
	t.Done(durable)
	return len(t.Keep), t.Refused
}

// One owner's cells have a limit together, and no part in another's (B150).
func TestOwnersLimits(t *testing.T) {
	var owners Owners
	a, b, other := owners.Cell(1), owners.Cell(1), owners.Cell(2)
	const half = limit.OwnerFlows / 2
	for _, c := range []*Cell{a, b} { // more than a box lets in
		if n, refused := take(c, true, records(intent, 0, half)); n != half || len(refused) != 0 {
			t.Fatalf("%d kept, %d refused", n, len(refused))
		}
	}
	n, refused := take(a, true, append(records(denied, 7, 8), records(intent, half, half+1)...))
	if n != 1 || len(refused) != 1 || refused[0].Index != 1 || refused[0].Reason != "busy" {
		t.Fatalf("%d kept, refused %v", n, refused)
	}
	if n, _ := take(other, true, records(intent, 0, 9)); n != 9 {
		t.Errorf("another owner's: %d", n)
	}
	// The denied one had been open: an intent that came too late. So there is room for one.
	if n, refused := take(b, true, records(intent, half, half+2)); n != 1 || len(refused) != 1 {
		t.Errorf("%d kept, %v", n, refused)
	}
	b.End()
	if n, refused := take(a, true, records(intent, half+5, half+6)); n != 1 {
		t.Errorf("after another cell's end: %v", refused)
	}
}

// New flows have a rate beside the number that is open.
func TestOwnersRate(t *testing.T) {
	var owners Owners
	c := owners.Cell(1)
	limited := 0
	for i := 0; i < 4*limit.OwnerBurst; i += 1000 {
		_, refused := take(c, true, records(intent, i, i+1000))
		take(c, true, records(outcome, i, i+1000))
		for _, r := range refused {
			if r.Reason != "rate-limited" {
				t.Fatal(r)
			}
			limited++
		}
	}
	if limited == 0 {
		t.Error("no rate holds")
	}
}

// TestHogsLeaveOthersTheirTurns is the attack: cells that open flows as fast as they
// can do not make another cell's fail, whenever it comes. One that is alone takes the
// whole rate.
func TestHogsLeaveOthersTheirTurns(t *testing.T) {
	for _, hogs := range []int{1, 3, 20} {
		now := time.Unix(100, 0)
		o := &owner{turns: turns{limit.OwnerBurst, now}}
		fresh := func() *Cell { return &Cell{turns: turns{limit.OwnerKept / 2, now}} }
		enter := func(c *Cell, tries int) (n int) {
			for range tries {
				if o.enter(c, now) == flow.None {
					n++
					o.leave(1)
				}
			}
			return n
		}
		greedy, modest, total := make([]*Cell, hogs), fresh(), 0
		for i := range greedy {
			greedy[i] = fresh()
			enter(greedy[i], limit.OwnerBurst)
		}
		for ms := range 10_000 {
			now = now.Add(time.Millisecond)
			for _, hog := range greedy {
				total += enter(hog, 10)
			}
			if ms < 5000 {
				continue // the hogs alone
			}
			if ms%10 == 0 && enter(modest, 1) != 1 {
				t.Fatalf("%d hogs: after %d ms a cell with 100 a second is refused", hogs, ms)
			}
			if ms%1000 == 0 && enter(fresh(), 20) != 20 {
				t.Fatalf("%d hogs: after %d ms a new cell is refused", hogs, ms)
			}
		}
		if total < 9*limit.OwnerNewFlows {
			t.Errorf("%d hogs in ten seconds: %d", hogs, total)
		}
	}
}

// An outcome that is sent again is recorded once; one that could not be written, the
// next time.
func TestOneOutcome(t *testing.T) {
	var owners Owners
	c := owners.Cell(1)
	take(c, true, records(intent, 0, 2))
	for i, want := range []int{2, 2, 0, 0} {
		if n, _ := take(c, i > 0, records(outcome, 0, 2)); n != want {
			t.Errorf("try %d: %d are recorded, want %d", i, n, want)
		}
	}
	take(c, false, records(intent, 5, 6)) // never was
	if n, _ := take(c, true, records(outcome, 5, 6)); n != 0 || c.owner.open != 0 || len(c.open) != 0 {
		t.Errorf("%d, %d open", n, c.owner.open)
	}
}

// What was open before skepd was replaced counts, and ends once.
func TestOpenFlowsAreLeft(t *testing.T) {
	var before, owners Owners
	a := before.Cell(1)
	take(a, true, records(intent, 0, 10))
	take(a, true, records(outcome, 0, 3))
	c := owners.Inherit(1, a.Leave())
	if n := c.owner.open; n != 7 {
		t.Errorf("%d flows are open", n)
	}
	if n, _ := take(c, true, records(outcome, 0, 10)); n != 7 {
		t.Errorf("%d outcomes were taken", n)
	}
	if n := c.owner.open; n != 0 {
		t.Errorf("%d flows are open at the end", n)
	}
}
