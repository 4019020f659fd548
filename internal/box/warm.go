package box

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/route"
)

// warm does once, on values that are nobody's, what stands between an assignment
// and its answer. A spare box has the time; in front of a cell the first use of
// each page of code took milliseconds. Nothing of it is kept.
func warm(ctx context.Context) error {
	e, err := eventOf(warmAssignment())
	if err != nil {
		return fmt.Errorf("warm: %w", err)
	}
	p := e.assignment.policy
	if err := p.Check(); err != nil {
		return fmt.Errorf("warm: %w", err)
	}
	q := flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Name: name.Nobody, Port: 80, Count: 1}
	v := policy.Decide(q, p.Policy)
	dns := &route.Resolver{Table: route.NewTable(1), Gate: closed{}, Rate: route.NewBucket(1, time.Now)}
	if query, err := probeQuery(); err == nil {
		dns.Answer(ctx, query)
	}
	message(boundary.Record{Kind: boundary.Denied, Request: q, Verdict: v, Decision: v.Refusal().Word()})
	return nil
}

// warmAssignment is a WatchResponse with one rule.
func warmAssignment() []byte {
	var ports, rule, limited, update, a, m writer
	ports.number(1, 443)
	ports.number(2, 443)
	rule.text(1, "warm")
	rule.text(3, "warm.example")
	rule.message(8, ports)
	rule.number(9, 1)
	limited.message(2, rule)
	limited.number(4, 1)
	limited.message(5, nil)
	update.text(1, "192.0.2.1:53")
	update.text(3, "192.0.2.2")
	a.text(1, "warm")
	a.message(4, limited)
	a.message(5, update)
	a.message(6, nil)
	m.message(1, a)
	return m
}

// probeQuery is the question of the probe (B163).
func probeQuery() ([]byte, error) {
	m := dnsmessage.Message{Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(name.Model + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}}}
	return m.Pack()
}

// closed is an early gate that opens for nothing.
type closed struct{}

func (closed) Admit(context.Context, string, netip.Addr) error { return ErrWardenGone }
func (closed) Withdraw(netip.Addr)                             {}
