package box

import (
	"context"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
)

// askAgain is how soon the state of a card is asked for where no policy has come.
const askAgain = 5 * time.Second

// People are who decides about a cell, reached by way of skepd (B232).
type People struct {
	link *link

	mu      sync.Mutex
	swapped chan struct{} // closed when the policy is another
}

// Draft puts one destination to a person; "" where too many questions are open.
func (p *People) Draft(ctx context.Context, host string, port uint16, t flow.Transport, why string) (string, error) {
	var m writer
	m.text(1, host)
	m.number(2, uint64(port))
	if t == flow.UDP {
		m.number(3, 1)
	}
	m.text(4, why)
	return p.call(ctx, "Draft", m)
}

// State is what became of a card, once it is not pending or ctx ends.
func (p *People) State(ctx context.Context, card string) (string, error) {
	for {
		changed := p.watch()
		var m writer
		m.text(1, card)
		state, err := p.call(context.WithoutCancel(ctx), "Asked", m)
		if err != nil || state != "pending" || ctx.Err() != nil {
			return state, err
		}
		select {
		case <-changed:
		case <-time.After(askAgain):
		case <-ctx.Done():
		}
	}
}

// call makes a call that is answered by one text.
func (p *People) call(ctx context.Context, method string, m writer) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeBy)
	defer cancel()
	answer, err := p.link.call(ctx, method, m)
	if err != nil {
		return "", err
	}
	r, text := reader{}, ""
	r.fields(answer, func(f field) { text = r.text(f) })
	return text, r.err
}

func (p *People) watch() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swapped == nil {
		p.swapped = make(chan struct{})
	}
	return p.swapped
}

// heard says that there is another policy: people have decided something.
func (p *People) heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swapped != nil {
		close(p.swapped)
		p.swapped = nil
	}
}
