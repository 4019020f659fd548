package tunneled

import (
	"fmt"
	"net"
	"time"

	"skep.dev/skep/internal/boundary/link"
	"skep.dev/skep/internal/box/served"
)

// serves makes what serves the callers of the cell, and gives the socket that they come to;
// nil where it serves nothing. A socket without a cell that serves is as wrong as the other
// way round (B172).
func (b *box) serves(c Config, s *link.Serves) (net.Listener, error) {
	switch {
	case s == nil && c.Ingress == nil && c.Reverse == nil:
		return nil, nil
	case s == nil || c.Ingress == nil || c.Reverse == nil || c.Inward == nil:
		return nil, errServes
	}
	from, err := net.FileListener(c.Ingress)
	if err != nil {
		return nil, fmt.Errorf("take the ingress socket: %w", err)
	}
	_ = c.Ingress.Close()
	dialer := &link.Dialer{Sock: c.Reverse}
	reverse := &served.Reverse{Dial: dialer.Dial, Form: s.Form, Monitor: s.Monitor}
	b.gate.Inward = c.Inward(reverse.Connect)
	b.served = &served.Listener{Gate: b.gate, Port: s.Port, Callers: s.Callers}
	b.probe = &served.Prober{Ask: b.served.Card(s.Name), Clock: clock{}}
	return from, nil
}

// clock is the machine's.
type clock struct{}

func (clock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}
