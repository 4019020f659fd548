package boundary

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/route"
)

// memory is a Recorder that keeps what it was given.
type memory struct {
	mu      sync.Mutex
	records []Record
	err     error
	block   bool
	steps   *[]string
}

func (m *memory) Record(ctx context.Context, r Record) error {
	if m.block {
		<-ctx.Done()
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	m.records = append(m.records, r)
	if m.steps != nil {
		*m.steps = append(*m.steps, map[Kind]string{Intent: "record", Outcome: "account", Denied: "denied"}[r.Kind])
	}
	return nil
}

func (m *memory) all() []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Record(nil), m.records...)
}

// place is a Dest that counts.
type place struct {
	mu     sync.Mutex
	opened int
	err    error
	permit Permit
	steps  *[]string
	hold   chan struct{}
	in     chan struct{}
}

func (p *place) Open(_ context.Context, permit Permit) (Upstream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	p.permit = permit
	if p.steps != nil {
		*p.steps = append(*p.steps, "open")
	}
	return p, p.err
}

func (p *place) Address() netip.AddrPort { return netip.MustParseAddrPort("192.0.2.1:443") }
func (p *place) Dropped() int            { return 1 }
func (p *place) Carry(_ context.Context, c net.Conn) End {
	if p.hold != nil {
		p.in <- struct{}{}
		<-p.hold
	}
	c.Close()
	return End{Up: 3, Down: 4}
}

func gate(t testing.TB, rec Recorder, dest Dest) *Gate {
	t.Helper()
	ports, _ := right.ParsePorts("443")
	g := &Gate{Identity: Identity{"cell", "agent", 7}, Recorder: rec, Refusals: NewRefusals(rec, time.Now), Internet: dest, Flows: 2, Now: time.Now}
	if err := g.Install(policy.Policy{Version: "v", Model: true, Rules: []policy.Rule{{ID: "r", Line: 9, Name: "ok.test", Ports: ports, TCP: true}}}); err != nil {
		t.Fatal(err)
	}
	return g
}

func request(host string, port uint16) flow.Request {
	return flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Name: host, Port: port, Count: 1}
}

func agent(t testing.TB) net.Conn {
	a, b := net.Pipe()
	t.Cleanup(func() { b.Close() })
	return a
}

func TestOrderIsRecordOpenAccount(t *testing.T) {
	var steps []string
	rec, dest := &memory{steps: &steps}, &place{steps: &steps}
	g := gate(t, rec, dest)
	forged := request("ok.test", 443)
	forged.Cell, forged.Agent, forged.Generation = "other", "other", 1
	g.Serve(context.Background(), forged, Connected{agent(t)})
	if got := strings.Join(steps, " "); got != "record open account" {
		t.Fatal(got)
	}
	for _, r := range rec.all() {
		if r.Request.Cell != "cell" || r.Request.Agent != "agent" || r.Request.Generation != 7 || r.Policy != "v" || r.Verdict.Rule != "r" || r.Verdict.Line != 9 {
			t.Errorf("identity or policy of %+v", r)
		}
	}
	out := rec.all()[1]
	if out.Up != 3 || out.Down != 4 || out.Dropped != 1 || !out.Address.IsValid() || out.Decision != "allow" {
		t.Errorf("%+v", out)
	}
}

func TestDeniedNeverOpens(t *testing.T) {
	rec, dest := &memory{}, &place{}
	g := gate(t, rec, dest)
	g.Serve(context.Background(), request("no.test", 443), Connected{agent(t)})
	g.Serve(context.Background(), flow.Request{}, Connected{agent(t)})
	(&Gate{Recorder: rec, Refusals: NewRefusals(rec, time.Now), Internet: dest, Flows: 9, Now: time.Now}).Serve(context.Background(), request("ok.test", 443), Connected{agent(t)})
	if dest.opened != 0 {
		t.Fatal("something was opened")
	}
	for i, want := range []flow.Reason{flow.NotOnAllowlist, flow.PolicyUnavailable, flow.PolicyUnavailable} {
		r := rec.all()[i]
		if r.Verdict.Refusal() != want || r.Kind != Denied || r.Decision != want.Word() {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

// B4 and BC-37: what cannot be recorded does not open, and a denial stays one.
func TestUnrecordedNeverOpens(t *testing.T) {
	for _, rec := range []*memory{{err: errors.New("full")}, {block: true}} {
		dest := &place{}
		g := gate(t, rec, dest)
		g.Serve(context.Background(), request("ok.test", 443), Connected{agent(t)})
		if dest.opened != 0 {
			t.Fatal("opened without a record")
		}
		rec.err, rec.block = nil, false
		if err := g.Refusals.Flush(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		if got := rec.all(); len(got) != 1 || got[0].Verdict.Reason != flow.RecordUnavailable || got[0].Decision != "fail" {
			t.Errorf("%+v", got)
		}
	}
}

func TestFailureToOpenIsRecorded(t *testing.T) {
	rec, dest := &memory{}, &place{err: &Failure{Reason: flow.ResolvedAddressDenied, Dropped: 2}}
	gate(t, rec, dest).Serve(context.Background(), request("ok.test", 443), Connected{agent(t)})
	got := rec.all()
	if len(got) != 2 || got[1].Verdict.Reason != flow.ResolvedAddressDenied || got[1].Decision != "block" || got[1].Dropped != 2 {
		t.Errorf("%+v", got)
	}
	rec = &memory{}
	g := gate(t, rec, dest)
	q := request("mesh.skep.alt", 80)
	g.Serve(context.Background(), q, Connected{agent(t)})
	if got := rec.all(); got[1].Verdict.Reason != flow.NoProvider {
		t.Errorf("%+v", got)
	}
}

func TestEndOfCellIsTheReason(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rec, dest := &memory{}, &place{err: &Failure{Reason: flow.DialFailed}}
	gate(t, rec, dest).Serve(ctx, request("ok.test", 443), Connected{agent(t)})
	if got := rec.all(); got[len(got)-1].Verdict.Reason != flow.Revoked {
		t.Errorf("%+v", got)
	}
}

func TestOpenFlowsAreBounded(t *testing.T) {
	rec, dest := &memory{}, &place{hold: make(chan struct{}), in: make(chan struct{}, 2)}
	g := gate(t, rec, dest)
	var wg sync.WaitGroup
	for range 2 {
		c := agent(t)
		wg.Go(func() { g.Serve(context.Background(), request("ok.test", 443), Connected{c}) })
	}
	<-dest.in
	<-dest.in
	g.Serve(context.Background(), request("ok.test", 443), Connected{agent(t)})
	close(dest.hold)
	wg.Wait()
	g.Wait()
	busy := 0
	for _, r := range rec.all() {
		if r.Verdict.Reason == flow.Busy {
			busy++
		}
	}
	if busy != 1 || dest.opened != 2 {
		t.Errorf("%d busy, %d opened", busy, dest.opened)
	}
}

func TestZeroPermit(t *testing.T) {
	var p Permit
	if p.Valid() || p.Keeps(netip.MustParseAddr("1.1.1.1")) || p.DecideInner(flow.Inner{}).Allowed() || !p.RefuseMixed() || p.Resolve() != nil || p.Inspect() != policy.WantHTTP {
		t.Error("the zero permit permits something")
	}
}

func early(dst string, tr flow.Transport) route.Refusal {
	return route.Refusal{Transport: tr, Dst: netip.MustParseAddrPort(dst)}
}

// BG-12 in the small: identical refusals are one record, and counts add up.
func TestBG12RefusalsAddUp(t *testing.T) {
	now := time.Unix(0, 0)
	rec := &memory{}
	g := gate(t, rec, &place{})
	g.Refusals = NewRefusals(rec, func() time.Time { return now })
	for range 10000 {
		g.Early(early("1.2.3.4:80", flow.TCP), "")
	}
	g.Early(early("100.64.0.1:443", flow.TCP), "no.test")
	g.Early(early("100.64.0.2:443", flow.TCP), "ok.test") // allowed: the kernel had another reason
	g.Early(early("9.9.9.9:0", flow.Other), "")
	g.Unlogged(77)
	if err := g.Refusals.Flush(context.Background(), false); err != nil || len(rec.all()) != 0 {
		t.Fatal("the window is not over", err)
	}
	now = now.Add(Coalesce)
	if err := g.Refusals.Flush(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	var sum uint64
	want := map[string]flow.Reason{"1.2.3.4:80": flow.IPNotOnAllowlist, "no.test:443": flow.NotOnAllowlist, "ok.test:443": flow.Busy, "9.9.9.9:0": flow.TransportNotAllowed, "*": flow.NotOnAllowlist}
	for _, r := range rec.all() {
		sum += r.Request.Count
		if want[r.Request.Destination()] != r.Verdict.Reason {
			t.Errorf("%s: %s", r.Request.Destination(), r.Verdict.Reason)
		}
	}
	if sum != 10080 || len(rec.all()) != 5 {
		t.Errorf("%d refusals in %d records", sum, len(rec.all()))
	}
}

// Whatever the destinations and however often a write fails, nothing is lost.
func TestRefusalsAreNeverLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rec := &memory{}
		r := NewRefusals(rec, time.Now)
		var want, got uint64
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, 3000), 0, 40).Draw(t, "ports") {
			q := request("x.test", uint16(n+1))
			q.Count = uint64(i + 1)
			want += q.Count
			r.Add(Record{Request: q, Verdict: flow.Verdict{Reason: flow.NotOnAllowlist}})
			rec.err = nil
			if n%3 == 0 {
				rec.err = errors.New("full")
			}
			_ = r.Flush(context.Background(), n%2 == 0)
		}
		rec.err = nil
		if err := r.Flush(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		for _, x := range rec.all() {
			got += x.Request.Count
		}
		if got != want {
			t.Fatalf("recorded %d of %d", got, want)
		}
	})
}

func TestManyDestinationsStayBounded(t *testing.T) {
	rec := &memory{}
	r := NewRefusals(rec, time.Now)
	for i := range 3 * WaitingRecords {
		r.Add(Record{Request: request("x.test", uint16(i+1)), Verdict: flow.Verdict{Reason: flow.NotOnAllowlist}})
	}
	_ = r.Flush(context.Background(), true)
	var sum uint64
	for _, x := range rec.all() {
		sum += x.Request.Count
	}
	if len(rec.all()) > WaitingRecords+1 || sum != 3*WaitingRecords {
		t.Errorf("%d records of %d refusals", len(rec.all()), sum)
	}
}

func TestTallyFindsWhatTheLogLost(t *testing.T) {
	now := time.Unix(0, 0)
	var tally Tally
	tally.Logged(250)
	if n := tally.Read(1000, now); n != 0 {
		t.Errorf("%d at once: the log may still come", n)
	}
	tally.Logged(250)
	if n := tally.Read(1100, now.Add(Lag)); n != 500 {
		t.Errorf("%d of 500 missing", n)
	}
	if n := tally.Last(1100); n != 100 || tally.Behind(1100) {
		t.Errorf("%d of the last 100", n)
	}
}

// TestLimitsArePublished keeps docs/limits.md (B150).
func TestLimitsArePublished(t *testing.T) {
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), Table()) {
		t.Errorf("docs/limits.md does not hold the table; it should be:\n%s", Table())
	}
}

// B140: a question does not wait to be counted; its repeats do (B17).
func TestQuestionsAreNotKeptWaiting(t *testing.T) {
	now := time.Unix(1000, 0)
	rec := &notes{}
	r := NewRefusals(rec, func() time.Time { return now })
	ask := Record{Request: flow.Request{Name: "a.test", Port: 443, Transport: flow.TCP, Count: 1}, Verdict: flow.Verdict{Decision: flow.Ask, Reason: flow.ApprovalNeeded}}
	deny := ask
	deny.Verdict = flow.Verdict{Reason: flow.NotOnAllowlist}
	r.Add(deny)
	for range 3 {
		r.Add(ask)
		if err := r.Flush(context.Background(), false); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-r.Urgent():
	default:
		t.Error("nobody is told")
	}
	if len(rec.all) != 1 || rec.all[0].Request.Count != 1 {
		t.Errorf("%+v", rec.all)
	}
	now = now.Add(Coalesce)
	if err := r.Flush(context.Background(), false); err != nil || len(rec.all) != 3 || rec.all[2].Request.Count != 2 {
		t.Errorf("%v, %+v", err, rec.all)
	}
}

// notes keeps what it is told.
type notes struct{ all []Record }

func (n *notes) Record(_ context.Context, r Record) error {
	n.all = append(n.all, r)
	return nil
}
