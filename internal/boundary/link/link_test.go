package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
)

// A policy arrives as it was sent, every part of it.
func TestPolicyArrives(t *testing.T) {
	ports := right.Ports{{First: 443, Last: 443}, {First: 8000, Last: 8010}}
	p := policy.Policy{
		Version: "1", Model: true, Resolved: []policy.Range{{CIDR: netip.MustParsePrefix("10.0.0.0/8"), Ports: ports}},
		Rules: []policy.Rule{
			{ID: "a", Line: 3, Name: "ok.test", Ports: ports, TCP: true, UDP: true, Inner: policy.InnerTLS, Resolve: []netip.Addr{netip.MustParseAddr("::1")}},
			{ID: "b", Suffix: "x.test", Depth: 2, Ports: ports, TCP: true, HTTP: true},
			{ID: "c", IP: netip.MustParseAddr("192.0.2.1"), Ports: ports, TCP: true}, {ID: "d", CIDR: netip.MustParsePrefix("2001:db8::/32"), Ports: ports, UDP: true},
		},
		Ceiling: policy.Ceiling{Limits: true, Mixed: true, NoFloor: true, Own: []netip.Addr{netip.MustParseAddr("192.0.2.9")}},
	}
	var wire bytes.Buffer
	c := New(&wire)
	if err := c.Send(Order{Policy: &p}); err != nil {
		t.Fatal(err)
	}
	var got Order
	if err := c.Receive(&got); err != nil || !reflect.DeepEqual(*got.Policy, p) {
		t.Errorf("%v\n%+v\n%+v", err, got.Policy, p)
	}
	if err := c.Receive(&got); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

func TestWhatIsNotUnderstood(t *testing.T) {
	frame := func(body string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
	}
	for _, in := range []string{
		frame(`{"polcy":{}}`), frame(`{"policy":{"Rules":[{"Host":"x"}]}}`), frame(`{} {}`), frame(``), frame(`[]`), frame(`{"policy":{"Rules":[{"IP":"x"}]}}`),
		"\xff\xff\xff\xff", "\x00\x00\x00\x05{}", "\x00\x00",
	} {
		var o Order
		if err := New(bytes.NewBufferString(in)).Receive(&o); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%q: %v, %+v", in, err, o)
		}
	}
}

func TestRecordOf(t *testing.T) {
	r := boundary.Record{
		Kind: boundary.Outcome, Time: time.Unix(9, 0), Policy: "1", Decision: "fail", Address: netip.MustParseAddrPort("[::1]:443"), Up: 1, Down: 2, Duration: time.Second,
		Request: flow.Request{Cell: "c", Name: "ok.test", Port: 443, Transport: flow.TCP, Wire: flow.H1, Direction: flow.Out, Count: 1, Inner: flow.Inner{Protocol: flow.TLS, Name: "ok.test"}},
		Verdict: flow.Verdict{Reason: flow.IdleTimeout, Rule: "r", Line: 3},
	}
	got := RecordOf(r)
	if got.Kind != "outcome" || got.Destination != "ok.test:443" || got.Address != "[::1]:443" || got.Reason != "idle-timeout" || *got.Bytes != (Bytes{1, 2}) ||
		got.Inner.Name != "ok.test" || got.Millis != 1000 || got.Connection != "" || got.Wire != "h1" {
		t.Errorf("%+v", got)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x00\x00\x0c{\"ask\":true}"))
	f.Fuzz(func(_ *testing.T, in []byte) {
		c := New(bytes.NewBuffer(in))
		for {
			var o Order
			var w Word
			if c.Receive(&o) != nil {
				break
			}
			if c.Receive(&w) != nil {
				break
			}
		}
	})
}
