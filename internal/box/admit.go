package box

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// admission keeps the early gate's sets equal to what policy allows the names
// that have an address (B14). It is the route.Admitter of a box.
type admission struct {
	kernel     *kernel
	policy     func() policy.Policy
	transports []flow.Transport // that are carried

	swap      sync.RWMutex // held while the kernel is told
	addresses []span       // of literal rules, in the kernel's sets

	mu    sync.Mutex
	known map[netip.Addr]*admitted
}

// admitted is one address in the kernel's sets, or on its way there.
type admitted struct {
	done  chan struct{} // closed when err is set
	err   error
	host  string
	spans []span
}

func newAdmission(k *kernel, p func() policy.Policy, carried ...flow.Transport) *admission {
	return &admission{kernel: k, policy: p, transports: carried, known: map[netip.Addr]*admitted{}}
}

// Admit opens the gate for a name's address with the ports that policy allows
// the name. Parallel calls for one address share one attempt; a failed attempt
// is made again by the next call.
func (a *admission) Admit(ctx context.Context, host string, addr netip.Addr) error {
	a.swap.RLock()
	defer a.swap.RUnlock()
	a.mu.Lock()
	have := a.known[addr]
	if have == nil {
		have = &admitted{done: make(chan struct{}), host: host, spans: a.spansOf(host, addr, a.policy())}
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
		a.swap.RLock()
		defer a.swap.RUnlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.kernel.change(ctx, opRemove, have.spans)
	}()
}

// leave is what the kernel's sets hold: for rules, and for names. swap is held.
func (a *admission) leave() (literals, named []span) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, have := range a.known {
		select {
		case <-have.done:
			if have.err == nil {
				named = append(named, have.spans...)
			}
		default:
		}
	}
	return a.addresses, named
}

// inherit takes over what another box has asked for, so that it can be taken back; host
// is the name that has the address, "" where a rule has.
func (a *admission) inherit(host string, s span) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if host == "" {
		a.addresses = append(a.addresses, s)
		return
	}
	have := a.known[s.first]
	if have == nil {
		have = &admitted{done: make(chan struct{}), host: host}
		close(have.done)
		a.known[s.first] = have
	}
	have.spans = append(have.spans, s)
}

// literals opens the gate for the ip and cidr rules of the policy.
func (a *admission) literals(ctx context.Context) error {
	a.addresses = a.ofRules(a.policy())
	return a.kernel.change(ctx, opAdd, a.addresses)
}

func (a *admission) ofRules(p policy.Policy) (spans []span) {
	for _, t := range a.transports {
		for _, s := range policy.Literals(p, t) {
			for _, ports := range s.Ports {
				spans = append(spans, span{transport: t, first: s.First, last: s.Last, ports: ports})
			}
		}
	}
	return spans
}

// follow makes the sets what the policy of now says. What is not needed any more goes
// first: an element that overlaps another is none. Of a name that the kernel could not be
// told of in time the next question tells it.
func (a *admission) follow(ctx context.Context) {
	a.swap.Lock() // nobody is admitted meanwhile
	defer a.swap.Unlock()
	now := a.policy()
	var gone, come []span
	change := func(before, after []span) {
		for _, s := range before {
			if !slices.Contains(after, s) {
				gone = append(gone, s)
			}
		}
		for _, s := range after {
			if !slices.Contains(before, s) {
				come = append(come, s)
			}
		}
	}
	after := a.ofRules(now)
	change(a.addresses, after)
	a.addresses = after
	a.mu.Lock()
	defer a.mu.Unlock()
	for addr, have := range a.known {
		spans := a.spansOf(have.host, addr, now)
		change(have.spans, spans)
		have.spans = spans
	}
	err := a.kernel.change(ctx, opRemove, gone)
	if err == nil {
		err = a.kernel.change(ctx, opAdd, come)
	}
	if err != nil {
		clear(a.known)
	}
}

func (a *admission) spansOf(host string, addr netip.Addr, p policy.Policy) (spans []span) {
	for _, t := range a.transports {
		for _, ports := range policy.Ports(host, t, p) {
			spans = append(spans, span{transport: t, first: addr, ports: ports})
		}
	}
	return spans
}
