package boxlink

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/sys"
)

// records keeps what is recorded, or refuses it.
type records struct {
	mu   sync.Mutex
	cell string
	got  []*skepv1.FlowRecord
	uses []*skepv1.UseSecretRequest
	err  error
}

func (r *records) RecordFlows(_ context.Context, cell string, f []*skepv1.FlowRecord) ([]*skepv1.RefusedFlow, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cell, r.got = cell, append(r.got, f...)
	var refused []*skepv1.RefusedFlow
	for i, record := range f {
		if record.Reason != "" {
			refused = append(refused, &skepv1.RefusedFlow{Index: uint32(i), Reason: record.Reason})
		}
	}
	return refused, r.err
}

func (r *records) Lease(cell string, spent int64) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cell = cell
	return spent + 1, r.err
}

// pair is a link and a client that stands for the box.
func pair(t *testing.T) (*Link, skepv1connect.BoxServiceClient, *os.File) {
	t.Helper()
	l, theirs, _ := ends(t)
	return l, client(t, theirs), theirs
}

// ends is a link with the box's ends of its connection and its lifeline.
func ends(t *testing.T) (l *Link, theirs, line *os.File) {
	t.Helper()
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	lineOurs, line, err := sys.SeqpacketPair()
	if err != nil {
		t.Fatal(err)
	}
	if l, err = Serve(ours, lineOurs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); _, _ = theirs.Close(), line.Close() })
	return l, theirs, line
}

func client(t *testing.T, conn *os.File) skepv1connect.BoxServiceClient {
	t.Helper()
	c, err := net.FileConn(conn)
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}
	t.Cleanup(func() { h.CloseIdleConnections(); _ = c.Close() })
	return skepv1connect.NewBoxServiceClient(&http.Client{Transport: h}, "http://skepd")
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestBoxIsToldItsCellAndNothingBefore(t *testing.T) {
	l, box, _ := pair(t)
	ctx := soon(t)
	r := &records{}
	one := connect.NewRequest(&skepv1.RecordRequest{Records: []*skepv1.FlowRecord{{Cell: "another", Kind: skepv1.FlowRecord_KIND_DENIED}}})
	if _, err := box.Record(ctx, one); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a box without a cell recorded: %v", err)
	}
	l.Assign(&skepv1.Assignment{Cell: "mine"}, r)
	w, err := box.Watch(ctx, connect.NewRequest(&skepv1.WatchRequest{Protocol: Protocol}))
	if err != nil || !w.Receive() || w.Msg().GetAssignment().GetCell() != "mine" {
		t.Fatalf("got %v, %v", w.Msg(), err)
	}
	if _, err := box.Record(ctx, one); err != nil || r.cell != "mine" {
		t.Errorf("recorded for %q: %v", r.cell, err)
	}
	l.Push(&skepv1.ResolverUpdate{Resolvers: []string{"192.0.2.1:53"}})
	if !w.Receive() || len(w.Msg().GetResolver().GetResolvers()) != 1 {
		t.Errorf("got %v", w.Msg())
	}
	again, err := box.Watch(ctx, connect.NewRequest(&skepv1.WatchRequest{Protocol: Protocol}))
	if err == nil && again.Receive() {
		t.Error("a second watch was served")
	}
}

func TestRecordIsAnsweredByWhatTheLedgerSays(t *testing.T) {
	l, box, _ := pair(t)
	l.Assign(&skepv1.Assignment{Cell: "c"}, &records{err: errors.New("disk full")})
	_, err := box.Record(soon(t), connect.NewRequest(&skepv1.RecordRequest{}))
	if connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	_, err = box.Record(soon(t), connect.NewRequest(&skepv1.RecordRequest{Records: make([]*skepv1.FlowRecord, MaxRecords+1)}))
	if err == nil {
		t.Error("too many records were taken")
	}
}

func TestReadyAndEnd(t *testing.T) {
	l, box, _ := pair(t)
	ctx := soon(t)
	if _, err := box.Ready(ctx, connect.NewRequest(&skepv1.ReadyRequest{Error: "no socket"})); err != nil {
		t.Fatal(err)
	}
	if err := l.Ready(ctx); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("got %v", err)
	}
	if _, err := box.Ready(ctx, connect.NewRequest(&skepv1.ReadyRequest{Done: true})); err != nil {
		t.Fatal(err)
	}
	if err := l.End(ctx); err != nil {
		t.Error(err)
	}
}

// What is refused is told by its place in its own request; leases are those of the
// link's cell, and what of them was carried is told at the end.
func TestRefusedAndLeased(t *testing.T) {
	l, box, _ := pair(t)
	ctx := soon(t)
	if _, err := box.Lease(ctx, connect.NewRequest(&skepv1.LeaseRequest{})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a box without a cell got a lease: %v", err)
	}
	r := &records{}
	l.Assign(&skepv1.Assignment{Cell: "mine"}, r)
	var calls sync.WaitGroup
	for i := range 4 {
		calls.Go(func() {
			q := &skepv1.RecordRequest{Records: make([]*skepv1.FlowRecord, 9)}
			for j := range q.Records {
				q.Records[j] = &skepv1.FlowRecord{Kind: skepv1.FlowRecord_KIND_INTENT}
			}
			want := i % 9
			q.Records[want].Reason = "busy"
			a, err := box.Record(ctx, connect.NewRequest(q))
			if err != nil || len(a.Msg.Refused) != 1 || a.Msg.Refused[0].Index != uint32(want) || a.Msg.Refused[0].Reason != "busy" {
				t.Errorf("call %d: %v, %v", i, a, err)
			}
		})
	}
	calls.Wait()
	if a, err := box.Lease(ctx, connect.NewRequest(&skepv1.LeaseRequest{Spent: 41})); err != nil || a.Msg.Bytes != 42 || r.cell != "mine" {
		t.Errorf("%v, %v", a, err)
	}
	if _, told := l.Spent(); told {
		t.Error("told before the end")
	}
	if _, err := box.Ready(ctx, connect.NewRequest(&skepv1.ReadyRequest{Done: true, Spent: 77})); err != nil {
		t.Fatal(err)
	}
	if n, told := l.Spent(); n != 77 || !told {
		t.Errorf("%d, %v", n, told)
	}
}

func TestWatchOfAnotherProtocolIsRefused(t *testing.T) {
	_, box, _ := pair(t)
	w, err := box.Watch(soon(t), connect.NewRequest(&skepv1.WatchRequest{Protocol: Protocol + 1}))
	if err == nil && w.Receive() {
		t.Error("it was served")
	}
}

func TestBoxThatHangsUpIsGone(t *testing.T) {
	l, box, _ := pair(t)
	ctx, cancel := context.WithCancel(soon(t))
	l.Assign(&skepv1.Assignment{Cell: "c"}, &records{})
	w, err := box.Watch(ctx, connect.NewRequest(&skepv1.WatchRequest{Protocol: Protocol}))
	if err != nil || !w.Receive() {
		t.Fatal(err)
	}
	cancel() // the stream breaks
	select {
	case <-l.Done():
	case <-soon(t).Done():
		t.Error("the link lives on without its stream")
	}
	if err := l.Ready(soon(t)); err == nil {
		t.Error("a box that is gone is ready")
	}
}

func TestBodies(t *testing.T) {
	r := &skepv1.FlowRecord{
		Kind: skepv1.FlowRecord_KIND_INTENT, Destination: "[2001:db8::1]:443", Transport: "tcp", InnerProtocol: "tls", InnerName: "x.example",
		Line: 7, Rule: "net-1", BytesUp: 5,
	}
	b, err := Body(r)
	f, ok := b.(*kind.FlowIntent)
	if err != nil || !ok || f.Destination != "2001:db8::1" || f.Port != 443 || f.Inner != "tls x.example" || f.Line != 7 {
		t.Errorf("got %+v, %v", b, err)
	}
	for destination, want := range map[string]struct {
		host string
		port uint16
	}{
		"x.example:80": {"x.example", 80}, "*": {"*", 0}, "x.example": {"x.example", 0}, "x:99999": {"x:99999", 0}, "": {"", 0}, "a:b:1": {"a:b", 1},
	} {
		if host, port := split(destination); host != want.host || port != want.port {
			t.Errorf("%q is %q and %d", destination, host, port)
		}
	}
	if _, err := Body(&skepv1.FlowRecord{}); err == nil {
		t.Error("a record of no kind was taken")
	}
}

func TestPolicy(t *testing.T) {
	p, faults := profile.ParseAt("p.yaml", profile.Place{Dir: "/"}, []byte(`
version: v1
net:
  - {name: a.example}
  - {name: "*.b.example", ports: [443, 8000-8010], id: mine}
  - {ip: 192.0.2.1, ports: [80]}
  - {cidr: 198.51.100.0/24, ports: [80]}
`))
	if faults != nil {
		t.Fatal(faults)
	}
	a, err := Wire(PolicyOf(p, policy.Ceiling{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := a.Rules
	if len(got) != 4 || got[0].Name != "a.example" || got[0].Id != "net-1" || got[0].Line != 4 || got[1].Suffix != "b.example" ||
		got[1].Id != "mine" || len(got[1].Ports) != 2 || got[2].Ip != "192.0.2.1" || got[3].Cidr != "198.51.100.0/24" {
		t.Errorf("got %v", got)
	}
	b, _ := Wire(PolicyOf(p, policy.Ceiling{NoFloor: true}), nil)
	if a.Version == b.Version || len(a.Version) != 64 {
		t.Error("the version does not bind the ceiling")
	}
}

func (r *records) Draft(cell string, q *skepv1.DraftRequest) (string, error) {
	return cell + " " + q.Host, r.err
}

func (r *records) Asked(cell, card string) string { return cell + " " + card }

// B232: a draft and its answer are those of the link's cell.
func TestDrafts(t *testing.T) {
	l, box, _ := pair(t)
	ctx := soon(t)
	if _, err := box.Draft(ctx, connect.NewRequest(&skepv1.DraftRequest{})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a box without a cell asked: %v", err)
	}
	l.Assign(&skepv1.Assignment{Cell: "mine"}, &records{})
	if a, err := box.Draft(ctx, connect.NewRequest(&skepv1.DraftRequest{Host: "a.test"})); err != nil || a.Msg.Card != "mine a.test" {
		t.Errorf("%v, %v", a, err)
	}
	if a, err := box.Asked(ctx, connect.NewRequest(&skepv1.AskedRequest{Card: "x"})); err != nil || a.Msg.State != "mine x" {
		t.Errorf("%v, %v", a, err)
	}
}

func (r *records) UseSecret(cell string, q *skepv1.UseSecretRequest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cell, r.uses = cell, append(r.uses, q)
	return r.err
}
