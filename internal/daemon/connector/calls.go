package connector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/boundary/link"
)

// Status is how one agent stands.
type Status struct {
	Agent, ExternalID, Egress string
	Ingress                   string // empty: it serves nothing
	Advertised                bool   // its card was there at the last probe (B177)
	Generation                uint64
	Verified                  bool
	Expiry                    time.Time // of the credential; zero without one
	Policy                    string    // its version
	Flows                     int       // open
	Denials                   uint64
	Fault                     string // why its box did not say; then Flows and Denials are 0
}

// Refresh judges a new credential of an attached agent. With an error the old one stays,
// until its expiry; no flow is cut (B210).
func (c *Connector) Refresh(ctx context.Context, id, path string) (expiry time.Time, err error) {
	err = c.use(id, func(s *slot) error {
		if !s.lives() {
			return ErrUnknown
		}
		if expiry, err = c.verify(ctx, s.bundle, path); err != nil {
			return err
		}
		s.expiry = expiry
		if s.run.secrets != nil {
			s.run.refresh(ctx)
		}
		return c.Sink.event(s.run.who, event{Kind: "refreshed"})
	})
	return expiry, err
}

// Detach ends an agent's flows and removes its socket, and is back when nothing of it is
// left. An unknown agent is a success (B210, B162).
func (c *Connector) Detach(_ context.Context, id string) error {
	return c.use(id, func(s *slot) error { return c.detach(s) })
}

func (c *Connector) detach(s *slot) error {
	if s.run == nil {
		return nil
	}
	run := s.run
	lived := s.lives()
	run.end()
	s.run = nil
	switch {
	case !lived:
		return nil // that it died is recorded
	case run.ended != nil:
		return fmt.Errorf("detach %s: its box ended before its flows were recorded: %w", run.who.Sandbox, run.ended)
	}
	return c.Sink.event(run.who, event{Kind: "detached"})
}

// Status tells how one agent stands, or with an empty id all that are attached, in order.
func (c *Connector) Status(ctx context.Context, id string) ([]Status, error) {
	c.mu.Lock()
	var ids []string
	for known := range c.agents {
		if id == "" || id == known {
			ids = append(ids, known)
		}
	}
	c.mu.Unlock()
	slices.Sort(ids)
	var out []Status
	for _, id := range ids {
		err := c.use(id, func(s *slot) error {
			if !s.lives() {
				return nil
			}
			at, err := ask(ctx, s.run, link.Order{Ask: true}, s.run.status, askWithin)
			fault := ""
			if err != nil { // of one agent, and the others are told all the same
				fault = fmt.Sprintf("ask its box: %v", err)
			}
			out = append(out, Status{
				Fault: fault,
				Agent: s.run.who.Agent, ExternalID: s.run.who.ExternalID, Egress: s.run.socket, Ingress: s.run.ingress, Advertised: at.Advertised, Generation: s.run.who.Generation,
				Verified: s.run.who.Meta.Identity == "verified", Expiry: s.expiry, Policy: s.policy.Version, Flows: at.Flows, Denials: at.Denials,
			})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if id != "" && len(out) == 0 {
		return nil, ErrUnknown
	}
	return out, nil
}

// Renamed tells every box what the host knows about names now (B101).
func (c *Connector) Renamed(u *skepv1.ResolverUpdate) {
	n := namesOf(u)
	for _, s := range c.slots() {
		s.mu.Lock()
		if s.lives() {
			_ = s.run.send(link.Order{Names: &n}) // a box that is gone needs none
		}
		s.mu.Unlock()
	}
}

func (c *Connector) slots() (out []*slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.agents {
		out = append(out, s)
	}
	return out
}

// Gone is closed when the box of an attached agent has ended by itself.
func (c *Connector) Gone(id string) <-chan struct{} {
	var gone <-chan struct{}
	_ = c.use(id, func(s *slot) error {
		if s.run != nil {
			gone = s.run.gone
		}
		return nil
	})
	return gone
}

// Close detaches all, at once.
func (c *Connector) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, s := range c.slots() {
		all.Go(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			err := c.detach(s)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Describe is an attached agent in words.
func (a Attached) Describe() string {
	var b strings.Builder
	if a.Agent == "" {
		b.WriteString("no agent: without a bundle there is no identity, and the mesh would see this host only\n")
	} else {
		fmt.Fprintf(&b, "agent %s\n", a.Agent)
	}
	fmt.Fprintf(&b, "listening at %s\n", a.Egress)
	if a.Ingress != "" {
		fmt.Fprintf(&b, "serving at %s\n", a.Ingress)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Placeholders)) {
		fmt.Fprintf(&b, "secret %s: %s\n", name, a.Placeholders[name])
	}
	if len(a.Authority) > 0 {
		fmt.Fprintf(&b, "the agent's programs are to trust:\n%s", a.Authority)
	}
	for _, w := range a.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	return b.String()
}
