package boundary

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
)

// kernelDoor is what a Door was told, a channel of every change.
type kernelDoor struct {
	changes chan bool
	mu      sync.Mutex
	broken  int
}

func (k *kernelDoor) set(shut bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken > 0 {
		k.broken--
		return errors.New("the warden is busy")
	}
	k.changes <- shut
	return nil
}

func (k *kernelDoor) want(t *testing.T, shut bool) {
	t.Helper()
	select {
	case got := <-k.changes:
		if got != shut {
			t.Errorf("shut: %v, want %v", got, shut)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("shut is not %v in time", shut)
	}
}

// The door is shut with the last place taken, not with the first flow too many, and
// opens with the first that leaves. A change that failed is tried again.
func TestDoorIsShutWhileFull(t *testing.T) {
	k := &kernelDoor{changes: make(chan bool, 9), broken: 1}
	g := &Gate{Flows: 2}
	g.Door = NewDoor(k.set, g.Full)
	if why := g.enter(request("ok.test", 443)); why != flow.None || len(k.changes) > 0 {
		t.Error(why)
	}
	if why := g.enter(request("ok.test", 443)); why != flow.None {
		t.Error(why)
	}
	k.want(t, true)
	if why := g.enter(request("ok.test", 443)); why != flow.Busy || g.Door.Why() != flow.Busy {
		t.Errorf("%v, %v", why, g.Door.Why())
	}
	g.leave(request("ok.test", 443))
	k.want(t, false)
}

// Over the rate it is shut until there is a turn.
func TestDoorIsShutOverTheRate(t *testing.T) {
	k := &kernelDoor{changes: make(chan bool, 9)}
	g := &Gate{Flows: 9, Rate: route.NewBucket(2, time.Now)}
	g.Door = NewDoor(k.set, g.Full)
	for i, want := range []flow.Reason{flow.None, flow.None, flow.RateLimited} {
		if why := g.enter(request("ok.test", 443)); why != want {
			t.Errorf("flow %d: %v, want %v", i, why, want)
		}
	}
	if g.Door.Why() != flow.RateLimited {
		t.Error(g.Door.Why())
	}
	k.want(t, true)
	k.want(t, false)
}

// With the budget of bytes used up nothing is let in any more.
func TestDoorIsShutWithoutBytes(t *testing.T) {
	k := &kernelDoor{changes: make(chan bool, 9)}
	g := &Gate{Flows: 9, Bytes: NewBytes(t.Context(), &lender{})}
	g.Door = NewDoor(k.set, g.Full)
	if _, err := g.Bytes.Charge(t.Context(), 1); !errors.Is(err, ErrExhausted) {
		t.Fatal(err)
	}
	if why := g.enter(request("ok.test", 443)); why != flow.BudgetExhausted {
		t.Error(why)
	}
	k.want(t, true)
}

// noRoom is a recorder of an owner without room.
type noRoom struct{ memory }

func (n *noRoom) Record(ctx context.Context, r Record) error {
	if r.Kind == Intent {
		return &NoRoom{Reason: flow.RateLimited}
	}
	return n.memory.Record(ctx, r)
}

// What the owner has no room for does not open and says why; the door stays shut for a
// moment.
func TestOwnerWithoutRoom(t *testing.T) {
	k := &kernelDoor{changes: make(chan bool, 9)}
	rec, dest := &noRoom{}, &place{}
	g := gate(t, rec, dest)
	g.Door = NewDoor(k.set, g.Full)
	g.Serve(t.Context(), request("ok.test", 443), Connected{agent(t)})
	k.want(t, true)
	k.want(t, false)
	if all := rec.all(); len(all) != 1 || all[0].Kind != Denied || all[0].Verdict.Reason != flow.RateLimited || dest.opened != 0 {
		t.Errorf("%+v", all)
	}
}
