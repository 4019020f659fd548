package box

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/protobuf/proto"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/route"
)

// warm does once, on values that are nobody's, what stands between an assignment
// and its answer. A spare box has the time; in front of a cell the first use of a
// message type and of each page of code took 4 to 10 ms. Nothing of it is kept.
func warm(ctx context.Context) error {
	first := &skepv1.WatchResponse{Event: &skepv1.WatchResponse_Assignment{Assignment: &skepv1.Assignment{
		Cell: "warm", Limits: &skepv1.BoxLimits{}, Resolver: &skepv1.ResolverUpdate{Resolvers: []string{"192.0.2.1:53"}, OwnAddresses: []string{"192.0.2.2"}},
		Policy: &skepv1.BoxPolicy{Model: true, Ceiling: &skepv1.BoxCeiling{}, Rules: []*skepv1.BoxRule{
			{Id: "warm", Name: "warm.example", Tcp: true, Ports: []*skepv1.BoxPorts{{First: 443, Last: 443}}},
		}},
	}}}
	raw, err := proto.Marshal(first)
	if err != nil {
		return fmt.Errorf("warm: %w", err)
	}
	m := &skepv1.WatchResponse{}
	if err := proto.Unmarshal(raw, m); err != nil {
		return fmt.Errorf("warm: %w", err)
	}
	a := m.GetAssignment()
	p, err := policyOf(a.GetPolicy(), namesOf(a.GetResolver()).own)
	if err != nil {
		return fmt.Errorf("warm: %w", err)
	}
	q := flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Name: name.Policy, Port: 80, Count: 1}
	v := policy.Decide(q, p)
	dns := &route.Resolver{Table: route.NewTable(1), Gate: closed{}, Rate: route.NewBucket(1, time.Now)}
	if query, err := probeQuery(); err == nil {
		dns.Answer(ctx, query)
	}
	record := message(boundary.Record{Kind: boundary.Denied, Request: q, Verdict: v, Decision: v.Refusal().Word()})
	for _, sent := range []proto.Message{&skepv1.RecordRequest{Records: []*skepv1.FlowRecord{record}}, &skepv1.ReadyRequest{Error: "warm"}} {
		if _, err := proto.Marshal(sent); err != nil {
			return fmt.Errorf("warm: %w", err)
		}
	}
	return nil
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

func (closed) Admit(context.Context, string, netip.Addr) error { return errWardenGone }
func (closed) Withdraw(netip.Addr)                             {}
