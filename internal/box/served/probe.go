package served

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"skep.dev/skep/internal/sys"
)

// A probe of the agent's card has to be answered within probeWithin; the next follows after
// ProbeEvery (B177).
const (
	ProbeEvery  = 30 * time.Second
	probeWithin = 2 * time.Second
	maxStatus   = 4 << 10 // bytes of the answer that are read
)

// card is where an agent says what it is.
const card = "/.well-known/agent-card.json"

// Clock is time as a prober knows it.
type Clock interface {
	AfterFunc(d time.Duration, f func()) (stop func())
}

// Prober tells whether an agent can be advertised: its last probe has answered (B177).
type Prober struct {
	Ask   func(ctx context.Context) bool
	Clock Clock

	mu         sync.Mutex
	advertised bool
	stop       func()
	over       bool
}

// Advertised reports whether callers may be sent here.
func (p *Prober) Advertised() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.advertised
}

// Probe asks now, and again and again until Withdraw.
func (p *Prober) Probe(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	ok := p.Ask(within)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.advertised = ok
	p.stop = p.Clock.AfterFunc(ProbeEvery, func() { p.Probe(ctx) })
}

// Withdraw ends it: from now on nothing is advertised.
func (p *Prober) Withdraw() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over, p.advertised = true, false
	if p.stop != nil {
		p.stop()
	}
}

// Card asks the agent for its card, through the gate as any caller would, and reports
// whether it has answered with success.
func (l *Listener) Card(name string) func(ctx context.Context) bool {
	return func(ctx context.Context) bool {
		ours, theirs, err := pair()
		if err != nil {
			return false
		}
		defer func() { _ = ours.Close() }()
		ctx, cancel := context.WithCancel(ctx)
		over := make(chan struct{})
		go func() {
			defer close(over)
			l.Gate.Serve(ctx, l.request("probe"), arrival{theirs})
		}()
		defer func() { cancel(); <-over }()
		defer context.AfterFunc(ctx, func() { _ = ours.SetDeadline(time.Unix(1, 0)) })()
		_, err = io.WriteString(ours, "GET "+card+" HTTP/1.1\r\nHost: "+name+"\r\nConnection: close\r\n\r\n")
		if err != nil {
			return false
		}
		line, err := bufio.NewReader(io.LimitReader(ours, maxStatus)).ReadString('\n')
		return err == nil && strings.HasPrefix(line, "HTTP/1.1 2")
	}
}

func pair() (a, b net.Conn, err error) {
	x, y, err := sys.StreamPair()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _, _ = x.Close(), y.Close() }() // the net package keeps duplicates
	if a, err = net.FileConn(x); err != nil {
		return nil, nil, err
	}
	if b, err = net.FileConn(y); err != nil {
		_ = a.Close()
		return nil, nil, err
	}
	return a, b, nil
}
