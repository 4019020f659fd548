package box

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
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
	add := func(in set, t flow.Transport, literals []policy.Span) {
		for _, s := range literals {
			for _, ports := range s.Ports {
				spans = append(spans, span{in: in, transport: t, first: s.First, last: s.Last, ports: ports})
			}
		}
	}
	for _, t := range a.transports {
		add(0, t, policy.Literals(p, t))
	}
	add(heldSet, flow.TCP, policy.HeldLiterals(p))
	return append(append(spans, once("", netip.Addr{}, p)...), tokens(p)...)
}

// once are the spans of a name at its address, or of all addresses that rules are for, by
// which one connect alone may pass for an answer.
func once(host string, at netip.Addr, p policy.Policy) (spans []span) {
	for _, a := range policy.OnceAnswers(p) {
		if a.Name != host {
			continue
		}
		s := span{in: onceSet, transport: flow.TCP, first: at, ports: right.PortRange{First: a.Port, Last: a.Port}, token: tokenOf(a)}
		if host == "" {
			s.first = a.Addr
		}
		spans = append(spans, s)
	}
	return spans
}

// tokenOf is the same for both families, and for another answer another one. Two connects
// at the very same moment may both find it: the gate lets one of them through (B16).
func tokenOf(a policy.Answer) uint32 {
	sum := sha256.Sum256([]byte(a.ID))
	return binary.BigEndian.Uint32(sum[:]) | 1
}

// tokens are the spans of all answers for one connect that nobody has taken.
func tokens(p policy.Policy) (spans []span) {
	for _, a := range policy.OnceAnswers(p) {
		spans = append(spans, token(a))
	}
	return spans
}

func token(a policy.Answer) span {
	return span{in: tokenSet, transport: flow.TCP, first: tokenAddr(tokenOf(a)), ports: right.PortRange{First: a.Port, Last: a.Port}}
}

// back lets another connect pass for an answer by which q opened nothing. The caller does
// not wait.
func (a *admission) back(q flow.Request, rule string) {
	if q.Wire != flow.Native || q.Transport != flow.TCP {
		return
	}
	go func() {
		a.swap.RLock()
		defer a.swap.RUnlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, answer := range policy.OnceAnswers(a.policy()) {
			if answer.ID == rule {
				_ = a.kernel.change(ctx, opAdd, []span{token(answer)}) // else a person is asked again
			}
		}
	}()
}

// follow makes the sets what the policy of now says. What is not needed any more goes
// first: an element that overlaps another is none. What is held goes last, so that a
// connect whose answer has come is never refused between the two. Of a name that the
// kernel could not be told of in time the next question tells it.
func (a *admission) follow(ctx context.Context) {
	a.swap.Lock() // nobody is admitted meanwhile
	defer a.swap.Unlock()
	now := a.policy()
	var gone, come [2][]span // of what may pass, and then of what is held
	change := func(before, after []span) {
		for _, s := range before {
			if !slices.Contains(after, s) {
				gone[s.late()] = append(gone[s.late()], s)
			}
		}
		for _, s := range after {
			if !slices.Contains(before, s) {
				come[s.late()] = append(come[s.late()], s)
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
	var err error
	for in := range gone {
		if err == nil {
			err = a.kernel.change(ctx, opRemove, gone[in])
		}
		if err == nil {
			err = a.kernel.change(ctx, opAdd, come[in])
		}
	}
	if err != nil {
		clear(a.known)
	}
}

// late is the turn of a span in a change of policy.
func (s span) late() int {
	if s.in == heldSet {
		return 1
	}
	return 0
}

func (a *admission) spansOf(host string, addr netip.Addr, p policy.Policy) (spans []span) {
	for _, t := range a.transports {
		for _, ports := range policy.Ports(host, t, p) {
			spans = append(spans, span{transport: t, first: addr, ports: ports})
		}
	}
	for _, ports := range policy.HeldPorts(host, p) {
		spans = append(spans, span{in: heldSet, transport: flow.TCP, first: addr, ports: ports})
	}
	return append(spans, once(host, addr, p)...)
}
