package box

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/secret"
)

func wired(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fullRule has every field but the destination.
func fullRule() *skepv1.BoxRule {
	return &skepv1.BoxRule{
		Id: "r", Line: 70000, Ports: []*skepv1.BoxPorts{{First: 80, Last: 81}, {First: 443, Last: 443}},
		Tcp: true, Udp: true, Inner: "tls", Http: true, Resolve: []string{"192.0.2.7", "::ffff:192.0.2.8"},
		Methods: []string{"GET", "PUT"}, Paths: []string{"/a/*", "/b"}, EncodedSlash: true, Correlate: true, Ask: true, HoldMilliseconds: 5000, NoEch: true,
	}
}

// What generated code writes, the box reads, every field of every message.
func TestAssignmentIsRead(t *testing.T) {
	suffix, literal, cidr := fullRule(), fullRule(), fullRule()
	suffix.Suffix, suffix.Depth, literal.Ip, cidr.Cidr = "x.test", 3, "9.9.9.9", "9.9.0.0/16"
	named := fullRule()
	named.Name = "a.test"
	span := &skepv1.BoxRange{Cidr: "10.0.0.0/8", Ports: []*skepv1.BoxPorts{{First: 1, Last: 65535}}}
	m := &skepv1.Assignment{
		Cell: "cell", Agent: "agent.example", Generation: 1 << 63, Limits: &skepv1.BoxLimits{OpenFlows: 7, NewFlowsPerSecond: 8, IdleTcpSeconds: 9, Leased: true},
		Policy: &skepv1.BoxPolicy{Version: "v", Rules: []*skepv1.BoxRule{named, suffix}, ResolvedAddresses: []*skepv1.BoxRange{span}, Model: true, AskUnlisted: true, NoDesk: true, Answers: []*skepv1.BoxAnswer{
			{Id: "approval-a", Name: "a.test", Port: 443, Allow: true, Once: true, Used: true, Drafted: true}, {Id: "approval-b", Ip: "9.9.9.9", Port: 53, Udp: true},
		}, Ceiling: &skepv1.BoxCeiling{
			Limits: true, Allow: []*skepv1.BoxRule{literal}, ResolvedAddresses: []*skepv1.BoxRange{span}, Deny: []*skepv1.BoxRule{cidr}, Open: []*skepv1.BoxRange{span}, NoFloor: true, MixedRefuse: true,
			Proxy: &skepv1.BoxProxy{Host: "proxy.test", Port: 3128, Tls: true, Roots: []byte("pem"), Auth: "u:p", Direct: []string{".x.test", "y.test"}, ByName: true, Udp: true},
		}, Secrets: []*skepv1.BoxSecret{{
			Name: "gh", Hosts: []string{"a.test", "b.test"}, Ports: []uint32{443, 8443}, Path: "/r", As: []string{"basic", "header:x-key"}, Set: true, End: true, Placeholder: "skep-secret-gh-01234567",
		}}}, Roots: []byte("pem"), Successor: true,
		Resolver: &skepv1.ResolverUpdate{Resolvers: []string{"192.0.2.1:53", "?"}, OwnAddresses: []string{"192.0.2.2", "?"}, Hosts: []*skepv1.HostsEntry{
			{Name: "h.test", Addresses: []string{"192.0.2.3", "?"}}, {Name: "no name", Addresses: []string{"192.0.2.3"}},
		}},
	}
	complete(t, m)
	e, err := eventOf(wired(t, &skepv1.WatchResponse{Event: &skepv1.WatchResponse_Assignment{Assignment: m}}))
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr
	ports, _ := right.NewPorts(right.PortRange{First: 80, Last: 81}, right.PortRange{First: 443, Last: 443})
	all, _ := right.NewPorts(right.PortRange{First: 1, Last: 65535})
	rule := policy.Rule{ID: "r", Line: 70000, Ports: ports, TCP: true, UDP: true, Inner: policy.InnerTLS, HTTP: true, Resolve: []netip.Addr{addr("192.0.2.7"), addr("192.0.2.8")},
		Methods: []string{"GET", "PUT"}, Paths: []string{"/a/*", "/b"}, EncodedSlash: true, Correlate: true, Ask: true, Hold: 5 * time.Second, NoECH: true}
	r := [4]policy.Rule{rule, rule, rule, rule}
	r[0].Name, r[1].Suffix, r[1].Depth, r[2].IP, r[3].CIDR = "a.test", "x.test", 3, addr("9.9.9.9"), netip.MustParsePrefix("9.9.0.0/16")
	spans := []policy.Range{{CIDR: netip.MustParsePrefix("10.0.0.0/8"), Ports: all}}
	want := &assignment{
		cell: "cell", agent: "agent.example", generation: 1 << 63, limits: limits{openFlows: 7, newFlows: 8, idleSeconds: 9, leased: true},
		roots: []byte("pem"), successor: true,
		policy: &given{secrets: []secret.Bound{{Binding: secret.Binding{
			Name: "gh", Hosts: []string{"a.test", "b.test"}, Ports: []uint16{443, 8443}, Path: "/r", As: []secret.Place{{Kind: secret.Basic}, {Kind: secret.Header, Name: "x-key"}}, Set: true, End: true,
		}, Placeholder: "skep-secret-gh-01234567"}}, Policy: policy.Policy{Bound: []policy.Bound{{Name: "a.test", Ports: []uint16{443, 8443}}, {Name: "b.test", Ports: []uint16{443, 8443}}}, Version: "v", Rules: r[:2], Resolved: spans, Model: true, AskUnlisted: true, NoDesk: true, Answers: []policy.Answer{
			{ID: "approval-a", Name: "a.test", Port: 443, Transport: flow.TCP, Allow: true, Once: true, Used: true, Drafted: true}, {ID: "approval-b", Addr: addr("9.9.9.9"), Port: 53, Transport: flow.UDP},
		}, Ceiling: policy.Ceiling{
			Limits: true, Allow: r[2:3], Resolved: spans, Deny: r[3:], Open: spans, NoFloor: true, Mixed: true,
			Proxy: &policy.Proxy{Host: "proxy.test", Port: 3128, TLS: true, Roots: []byte("pem"), Auth: "u:p", Direct: []string{".x.test", "y.test"}, ByName: true, UDP: true},
		}}},
		names: names{
			resolvers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}, own: []netip.Addr{addr("192.0.2.2")},
			hosts: map[string][]netip.Addr{"h.test": {addr("192.0.2.3")}},
		},
	}
	if !reflect.DeepEqual(e.assignment, want) {
		t.Errorf("got %+v\nwant %+v", e.assignment, want)
	}
}

// complete fails for a field of any message below m that no message sets: a test
// that does not set a new field would not notice that the box does not read it.
func complete(t *testing.T, m proto.Message) {
	t.Helper()
	all, set := map[protoreflect.FullName]bool{}, map[protoreflect.FullName]bool{}
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		for i := range m.Descriptor().Fields().Len() {
			all[m.Descriptor().Fields().Get(i).FullName()] = true
		}
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			set[f.FullName()] = true
			switch {
			case f.Message() == nil:
			case f.IsList():
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			default:
				walk(v.Message())
			}
			return true
		})
	}
	walk(m.ProtoReflect())
	for name := range all {
		if !set[name] {
			t.Errorf("the test does not set %s", name)
		}
	}
}

func TestOtherEventsAreRead(t *testing.T) {
	e, err := eventOf(wired(t, &skepv1.WatchResponse{Event: &skepv1.WatchResponse_End{End: &skepv1.EndOfCell{}}}))
	if err != nil || !e.end || e.assignment != nil || e.update != nil {
		t.Errorf("%+v %v", e, err)
	}
	e, err = eventOf(wired(t, &skepv1.WatchResponse{Event: &skepv1.WatchResponse_Resolver{Resolver: &skepv1.ResolverUpdate{Resolvers: []string{"192.0.2.1:53"}}}}))
	if err != nil || e.end || e.update == nil || len(e.update.resolvers) != 1 {
		t.Errorf("%+v %v", e, err)
	}
}

// B88: what this box does not know, and what is no message, is refused.
func TestUnknownIsRefused(t *testing.T) {
	nested := func(path ...int) []byte { // an unknown field inside messages
		var inner writer
		inner.number(99, 1)
		for i := range path {
			var outer writer
			outer.message(path[len(path)-1-i], inner)
			inner = outer
		}
		return inner
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "event": nested(), "assignment": nested(1), "policy": nested(1, 4), "rule": nested(1, 4, 2), "ports": nested(1, 4, 2, 8), "range": nested(1, 4, 3),
		"ceiling": nested(1, 4, 5), "denied rule": nested(1, 4, 5, 4), "limits": nested(1, 6), "names": nested(1, 5), "hosts": nested(1, 5, 2), "secret": nested(1, 4, 9),
		"two events": {26, 0, 26, 0}, "fixed": {13, 0, 0, 0, 0}, "cut off": {10, 9, 1}, "number for a message": {8, 1}, "endless number": {10, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
		"no field": {0, 0}, "not text": {10, 3, 10, 1, 255}, "flag of two": {10, 4, 34, 2, 32, 2},
	} {
		if e, err := eventOf(b); err == nil {
			t.Errorf("%s: read as %+v", name, e)
		}
	}
}

// What the box writes, generated code reads, every field of a record.
func TestRecordIsWritten(t *testing.T) {
	q := flow.Request{
		ID: flow.NewID(), Conn: flow.NewID(), Cell: "cell", Agent: "agent", Generation: 5, Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP,
		Name: "a.test", Port: 443, Peer: "peer", Inner: flow.Inner{Protocol: flow.TLS, Name: "b.test", ALPN: "h2"}, Count: 6,
	}
	r := boundary.Record{
		Kind: boundary.Denied, Time: time.Unix(7, 8), Request: q, Verdict: flow.Verdict{Reason: flow.TLSNameMismatch, Rule: "r", Line: 9, AllowWith: "more"}, Policy: "v",
		Decision: "block", Address: netip.MustParseAddrPort("192.0.2.1:443"), Dropped: 10, Up: 11, Down: 12, Duration: 13 * time.Millisecond, Setup: 14 * time.Millisecond,
	}
	want := &skepv1.FlowRecord{
		Kind: skepv1.FlowRecord_KIND_DENIED, UnixNanos: 7e9 + 8, Flow: q.ID.String(), Connection: q.Conn.String(), Cell: "cell", Agent: "agent", Generation: 5, Policy: "v",
		Listener: "native", Wire: q.Wire.String(), Transport: q.Transport.String(), Direction: q.Direction.String(), Destination: q.Destination(), Address: "192.0.2.1:443",
		Peer: "peer", Rule: "r", Line: 9, Decision: "block", Reason: flow.TLSNameMismatch.Token(), AllowWith: "more", InnerProtocol: q.Inner.Protocol.String(), InnerName: "b.test",
		InnerAlpn: "h2", Count: 6, Dropped: 10, BytesUp: 11, BytesDown: 12, Milliseconds: 13, SetupMilliseconds: 14,
	}
	complete(t, want)
	got := &skepv1.FlowRecord{}
	if err := proto.Unmarshal(message(r), got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	for k, want := range map[boundary.Kind]skepv1.FlowRecord_Kind{boundary.Intent: 1, boundary.Outcome: 2, boundary.Denied: 3, 0: 0} {
		if got := kindOf(k); got != uint64(want) && k != 0 {
			t.Errorf("kind %d is written as %d", k, got)
		}
	}
	early := boundary.Record{Kind: boundary.Denied}
	got.Reset()
	if err := proto.Unmarshal(message(early), got); err != nil || got.Connection != "" || got.Address != "" {
		t.Errorf("%v %v", got, err)
	}
}
