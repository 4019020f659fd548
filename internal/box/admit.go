package box

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// admission keeps the early gate's sets equal to what policy allows the names
// that have an address (B14). It is the route.Admitter of a box.
type admission struct {
	kernel *kernel
	policy func() policy.Policy

	mu    sync.Mutex
	known map[netip.Addr]*admitted
}

// admitted is one address in the kernel's sets, or on its way there.
type admitted struct {
	done  chan struct{} // closed when err is set
	err   error
	spans []span
}

func newAdmission(k *kernel, p func() policy.Policy) *admission {
	return &admission{kernel: k, policy: p, known: map[netip.Addr]*admitted{}}
}

// Admit opens the gate for a name's address with the ports that policy allows
// the name. Parallel calls for one address share one attempt; a failed attempt
// is made again by the next call.
func (a *admission) Admit(ctx context.Context, host string, addr netip.Addr) error {
	a.mu.Lock()
	have := a.known[addr]
	if have == nil {
		have = &admitted{done: make(chan struct{})}
		for _, ports := range policy.Ports(host, flow.TCP, a.policy()) {
			have.spans = append(have.spans, span{transport: flow.TCP, first: addr, ports: ports})
		}
		a.known[addr] = have
		a.mu.Unlock()
		have.err = a.kernel.change(ctx, opAdd, have.spans)
		if have.err != nil {
			a.mu.Lock()
			delete(a.known, addr)
			a.mu.Unlock()
		}
		close(have.done)
		return have.err
	}
	a.mu.Unlock()
	select {
	case <-have.done:
		return have.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Withdraw closes the gate for an address whose name was evicted, beside the
// caller: until the kernel has done it, the address has no name and is denied
// as a literal (B55).
func (a *admission) Withdraw(addr netip.Addr) {
	a.mu.Lock()
	have := a.known[addr]
	delete(a.known, addr)
	a.mu.Unlock()
	if have == nil || len(have.spans) == 0 {
		return
	}
	go func() {
		<-have.done
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.kernel.change(ctx, opRemove, have.spans)
	}()
}

// literals opens the gate for the ip and cidr rules of the policy.
func (a *admission) literals(ctx context.Context) error {
	var spans []span
	for _, s := range policy.Literals(a.policy(), flow.TCP) {
		for _, ports := range s.Ports {
			spans = append(spans, span{transport: flow.TCP, first: s.First, last: s.Last, ports: ports})
		}
	}
	return a.kernel.change(ctx, opAdd, spans)
}
