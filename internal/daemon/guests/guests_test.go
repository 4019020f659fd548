package guests

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
)

// lab is a house with a ledger in memory, and a client of it.
type lab struct {
	*Guests
	t     *testing.T
	call  skepv1connect.SkepClient
	leave chan struct{}
	clock *clock

	mu      sync.Mutex
	entries []ledger.Entry
	full    error
}

// clock calls what waits when it is told to.
type clock struct {
	mu   sync.Mutex
	wait []func()
}

func (*clock) Now() time.Time { return time.Unix(1_000_000, 0) }

func (c *clock) AfterFunc(_ time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.wait)
	c.wait = append(c.wait, f)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wait[n] = func() {}
	}
}

func (c *clock) fire() {
	c.mu.Lock()
	all := slices.Clone(c.wait)
	c.mu.Unlock()
	for _, f := range all {
		f()
	}
}

var errAgain = connect.NewError(connect.CodeAborted, errors.New("again"))

func newLab(t *testing.T, dir string) *lab {
	t.Helper()
	store, _, err := cells.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, leave: make(chan struct{}), clock: &clock{}}
	l.Guests = New(House{
		Cells: store, Clock: l.clock, Log: slog.New(slog.DiscardHandler), Again: errAgain, Ledger: func() Ledger { return l },
		Leaving: func() <-chan struct{} { return l.leave },
		Recorded: func(string) (time.Time, *kind.CellStopped, time.Time, error) {
			return time.Time{}, nil, time.Time{}, nil
		},
	})
	mux := http.NewServeMux()
	mux.Handle(skepv1connect.SkepGuestServeProcedure, connect.NewServerStreamHandler(skepv1connect.SkepGuestServeProcedure, l.Serve))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	l.call = skepv1connect.NewSkepClient(s.Client(), s.URL)
	return l
}

// AppendAll implements Ledger.
func (l *lab) AppendAll(_ context.Context, e []ledger.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full == nil {
		l.entries = append(l.entries, e...)
	}
	return l.full
}

// EndCell implements Ledger.
func (l *lab) EndCell(string) error { return nil }

// serve opens a stream, and is what it said first.
func (l *lab) serve(ctx context.Context, session string) (*connect.ServerStreamForClient[skepv1.GuestEvent], string) {
	l.t.Helper()
	s, err := l.call.GuestServe(ctx, connect.NewRequest(&skepv1.GuestServeRequest{Session: session}))
	if err != nil {
		l.t.Fatal(err)
	}
	if !s.Receive() {
		l.t.Fatal(s.Err())
	}
	return s, s.Msg().Session
}

func (l *lab) begin(session string, slice *uint32) (string, error) {
	ctx := peer.With(l.t.Context(), peer.Peer{UID: 7})
	a, err := l.Begin(ctx, connect.NewRequest(&skepv1.GuestBeginRequest{Session: session, Agent: "a.example", Identity: "verified", Listener: "/s", Generation: 1, PoolSlice: slice, Policy: "p"}))
	if err != nil {
		return "", err
	}
	return a.Msg.Cell, nil
}

func (l *lab) record(session, cell string) error {
	r := &skepv1.FlowRecord{Kind: skepv1.FlowRecord_KIND_INTENT, Destination: "ok.test:443", Cell: "another", Agent: "another"}
	_, err := l.Record(l.t.Context(), connect.NewRequest(&skepv1.GuestRecordRequest{Session: session, Cell: cell, Records: []*skepv1.FlowRecord{r}}))
	return err
}

// ends are how a cell's entries end it.
func (l *lab) ends(cell string) (causes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if s, ok := e.Body.(*kind.CellStopped); ok && e.Cell == cell {
			causes = append(causes, s.Cause)
		}
	}
	return causes
}

func (l *lab) until(what string, holds func() bool) {
	l.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(10 * time.Second); !holds(); {
		select {
		case <-tick.C:
		case <-late:
			l.t.Fatal(what)
		}
	}
}

// TestOneConnectorsWord: no connector records for another's agent, and no record says who
// it is about.
func TestOneConnectorsWord(t *testing.T) {
	l := newLab(t, t.TempDir())
	_, a := l.serve(t.Context(), "")
	_, b := l.serve(t.Context(), "")
	cell, err := l.begin(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.record(b, cell); err == nil {
		t.Error("another connector recorded for it")
	}
	if err := l.record("", cell); err == nil {
		t.Error("nobody recorded for it")
	}
	if _, err := l.Finish(t.Context(), connect.NewRequest(&skepv1.GuestEndRequest{Session: b, Cell: cell})); err != nil || !l.Lives(cell) {
		t.Errorf("another connector ended it: %v", err)
	}
	if err := l.record(a, cell); err != nil {
		t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.Cell != cell || e.Agent != "a.example" {
			t.Errorf("%+v", e)
		}
	}
}

// TestEndsOnce: a guest ends with its connector's stream, or by its word, once; then nothing
// more is recorded of it.
func TestEndsOnce(t *testing.T) {
	l := newLab(t, t.TempDir())
	ctx, hangUp := context.WithCancel(t.Context())
	_, session := l.serve(ctx, "")
	told, err := l.begin(session, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Finish(t.Context(), connect.NewRequest(&skepv1.GuestEndRequest{Session: session, Cell: told})); err != nil {
		t.Fatal(err)
	}
	left, err := l.begin(session, nil)
	if err != nil {
		t.Fatal(err)
	}
	hangUp()
	l.until("it lives on", func() bool { return !l.Lives(left) })
	for cell, want := range map[string]string{told: "revoked", left: "boundary-died"} {
		if got := l.ends(cell); !slices.Equal(got, []string{want}) {
			t.Errorf("%q, want %s", got, want)
		}
		if l.record(session, cell) == nil {
			t.Error("it was recorded for after its end")
		}
	}
	if _, err := l.begin(session, nil); err == nil {
		t.Error("a connector that is gone attached an agent")
	}
}

// TestWhatIsNotRecordedDoesNotBegin: with a ledger that cannot write there is no guest.
func TestWhatIsNotRecordedDoesNotBegin(t *testing.T) {
	l := newLab(t, t.TempDir())
	_, session := l.serve(t.Context(), "")
	l.full = errors.New("full")
	if _, err := l.begin(session, nil); err == nil || l.Count() != 0 || len(l.Cells.All()) != 0 {
		t.Errorf("%v, %d live, %d records", err, l.Count(), len(l.Cells.All()))
	}
}

// TestSlices: no life gets the pool slice of an earlier one, whatever became of that (G82).
func TestSlices(t *testing.T) {
	dir, slice := t.TempDir(), uint32(5)
	l := newLab(t, dir)
	_, session := l.serve(t.Context(), "")
	if _, err := l.begin(session, &slice); err != nil {
		t.Fatal(err)
	}
	next := newLab(t, dir)
	_, session = next.serve(t.Context(), "")
	if _, err := next.begin(session, &slice); err == nil {
		t.Error("a slice was given out twice")
	}
}

// TestReplacement: after a replacement a connector comes back to its agents; one that does
// not loses them; without a replacement they have ended with skepd.
func TestReplacement(t *testing.T) {
	for what, c := range map[string]struct {
		inherited, back bool
		want            []string
	}{"comes back": {true, true, nil}, "does not": {true, false, []string{"boundary-died"}}, "skepd died": {false, false, []string{"daemon-died"}}} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			l := newLab(t, dir)
			stream, session := l.serve(t.Context(), "")
			cell, err := l.begin(session, nil)
			if err != nil {
				t.Fatal(err)
			}
			close(l.leave)
			if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeAborted {
				t.Errorf("the stream ended with %v", stream.Err())
			}
			next := newLab(t, dir)
			if err := next.Reconcile(c.inherited); err != nil {
				t.Fatal(err)
			}
			if c.back {
				if err := next.record(session, cell); err != nil { // before its stream is there again
					t.Error(err)
				}
				if _, again := next.serve(t.Context(), session); again != session {
					t.Errorf("session %s", again)
				}
			}
			next.clock.fire()
			if got := next.ends(cell); !slices.Equal(got, c.want) || next.Lives(cell) != c.back {
				t.Errorf("%q, lives: %v", got, next.Lives(cell))
			}
		})
	}
}

// TestEndAll: every connector is told, and who does not hear has its agents ended.
func TestEndAll(t *testing.T) {
	l := newLab(t, t.TempDir())
	stream, session := l.serve(t.Context(), "")
	cell, err := l.begin(session, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		l.EndAll(cells.Cause{Word: "stop", Detail: "skepd was stopped"})
		close(done)
	}()
	if !stream.Receive() || !stream.Msg().End {
		t.Errorf("%v, %v", stream.Msg(), stream.Err())
	}
	l.clock.fire()
	<-done
	if got := l.ends(cell); !slices.Equal(got, []string{"operator"}) {
		t.Errorf("%q", got)
	}
	if _, err := l.begin(session, nil); err == nil {
		t.Error("an agent was attached at the end")
	}
}
