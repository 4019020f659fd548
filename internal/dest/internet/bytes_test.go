package internet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
)

// purse leases blocks of a limit.
type purse struct{ left, block atomic.Int64 }

func newPurse(limit, block int64) *purse {
	p := &purse{}
	p.left.Store(limit)
	p.block.Store(block)
	return p
}

func (p *purse) Lease(context.Context, int64) (int64, error) {
	n := min(p.left.Load(), p.block.Load())
	p.left.Add(-n)
	return n, nil
}

// outcomes are the last records, one for each of n flows.
func (l *lab) outcomes(n int) []boundary.Record {
	l.t.Helper()
	for range n {
		l.last()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []boundary.Record
	for _, r := range l.recs {
		if r.Kind == boundary.Outcome {
			all = append(all, r)
		}
	}
	return all
}

// One connection that stays open carries what the budget has and not a byte more, up
// and down, by whatever way its bytes travel; it ends with the reason (R9a).
func TestOneFlowEndsAtItsBudget(t *testing.T) {
	const limit = 3<<20 + 777
	port, _ := serve(t, echo)
	for what, http := range map[string]bool{"spliced": false, "HTTP": true} {
		rule := local(t, "ok.test", port)
		rule.HTTP = http
		l := newLab(t, rule)
		l.gate.Bytes = boundary.NewBytes(t.Context(), newPurse(limit, 1<<20))
		c := l.connect("ok.test", port)
		if http {
			_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: ok.test:%d\r\nContent-Length: 9999999999\r\n\r\n", port)
			_, _ = io.Copy(c, zeros{})
		}
		var err error
		for b := make([]byte, 64<<10); err == nil; _, err = io.ReadFull(c, b) { // an echo, until it ends
			_, _ = c.Write(b) // what fails here fails there
		}
		r := l.last()
		if r.Verdict.Reason != flow.BudgetExhausted || r.Up+r.Down != uint64(l.gate.Bytes.Spent()) || l.gate.Bytes.Spent() > limit || r.Up == 0 || r.Down == 0 && !http {
			t.Errorf("%s: spent %d of %d, %+v", what, l.gate.Bytes.Spent(), limit, r)
		}
	}
}

// Many flows share one budget to the byte; what comes after it is refused.
func TestManyFlowsShareABudget(t *testing.T) {
	const limit, flows = 8 << 20, 32
	port, _ := serve(t, echo)
	l := newLab(t, local(t, "ok.test", port))
	l.gate.Bytes = boundary.NewBytes(t.Context(), newPurse(limit, 1<<20))
	var wait sync.WaitGroup
	for range flows {
		c := l.connect("ok.test", port)
		wait.Go(func() {
			go func() { _, _ = io.Copy(c, zeros{}) }()
			_, _ = io.Copy(io.Discard, c)
		})
	}
	wait.Wait()
	var sum uint64
	for _, r := range l.outcomes(flows) {
		sum += r.Up + r.Down
		if r.Verdict.Reason != flow.BudgetExhausted {
			t.Errorf("%+v", r)
		}
	}
	if spent := l.gate.Bytes.Spent(); sum != uint64(spent) || spent > limit || spent < limit-flows<<10 {
		t.Errorf("the flows carried %d, %d are spent of %d", sum, spent, limit)
	}
	c := l.connect("ok.test", port)
	_, _ = io.Copy(c, zeros{}) // a few bytes of the flows that were reset may have come back
	if r := l.last(); r.Verdict.Reason != flow.BudgetExhausted {
		t.Errorf("%+v", r)
	}
}

// A flow that used the budget to its last byte and then ends has done nothing wrong.
func TestTheLastByteIsNoExcess(t *testing.T) {
	port, _ := serve(t, echo)
	l := newLab(t, local(t, "ok.test", port))
	l.gate.Bytes = boundary.NewBytes(t.Context(), newPurse(10, 4))
	c := l.connect("ok.test", port)
	got := bufio.NewReader(c)
	if _, err := io.WriteString(c, "12345"); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	if all, err := io.ReadAll(got); err != nil || string(all) != "12345" {
		t.Errorf("%q, %v", all, err)
	}
	if r := l.last(); r.Verdict.Reason != flow.None || r.Up != 5 || r.Down != 5 || l.gate.Bytes.Spent() != 10 {
		t.Errorf("%+v", r)
	}
}
