package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/seal"
)

// handClock is a clock that a test turns.
type handClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*handTimer
}

type handTimer struct {
	at time.Time
	f  func()
}

func newHandClock() *handClock { return &handClock{now: time.Unix(1796000000, 123456789)} }

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) AfterFunc(d time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &handTimer{c.now.Add(d), f}
	c.timers = append(c.timers, t)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.timers = slices.DeleteFunc(c.timers, func(o *handTimer) bool { return o == t })
	}
}

func (c *handClock) turn(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []func()
	c.timers = slices.DeleteFunc(c.timers, func(t *handTimer) bool {
		if t.at.After(c.now) {
			return false
		}
		due = append(due, t.f)
		return true
	})
	c.mu.Unlock()
	for _, f := range due {
		f()
	}
}

func testDir(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger") }

func mustOpen(t testing.TB, dir string, opts Options) *Ledger {
	t.Helper()
	l, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func note(text string) kind.Body { return kind.Note{By: "test", Text: kind.Bytes(text)} }

func mustAppend(t testing.TB, l *Ledger, cell, text string) uint64 {
	t.Helper()
	seq, err := l.Append(context.Background(), Entry{Cell: cell, Body: note(text)})
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func readAll(t testing.TB, dir string, f Filter) []Record {
	t.Helper()
	var out []Record
	for r, err := range Read(dir, f) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func TestAppendAndReadBack(t *testing.T) {
	dir := testDir(t)
	clock := newHandClock()
	l := mustOpen(t, dir, Options{Clock: clock})
	for i := range 5 {
		clock.turn(time.Nanosecond)
		if seq := mustAppend(t, l, "c1", fmt.Sprint("n", i)); seq != uint64(i+1) {
			t.Fatalf("seq %d", seq)
		}
		mustAppend(t, l, "c2", "\xff\x00")
	}
	got := readAll(t, dir, Filter{Cell: "c1"})
	prev := entry.Genesis("c1")
	for i, r := range got {
		if r.Seq != uint64(i+1) || r.Prev != prev || r.Time.UnixNano() != 1796000000123456790+int64(i) {
			t.Errorf("entry %d: %+v", i, r)
		}
		prev = r.Hash
		b, err := r.Decode()
		if err != nil || string(b.(*kind.Note).Text) != fmt.Sprint("n", i) {
			t.Error(b, err)
		}
	}
	if len(got) != 5 {
		t.Fatalf("%d entries", len(got))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(context.Background(), Entry{Cell: "c1", Body: note("x")}); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	// A chain goes on where it ended, and a closed ledger needs no recovery.
	l = mustOpen(t, dir, Options{Clock: clock})
	if seq := mustAppend(t, l, "c1", "more"); seq != 6 {
		t.Errorf("seq %d after reopening", seq)
	}
	if n := len(readAll(t, dir, Filter{})); n != 11 {
		t.Errorf("%d entries after reopening", n)
	}
}

func TestSecondOpenerIsRefused(t *testing.T) {
	dir := testDir(t)
	l := mustOpen(t, dir, Options{})
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrInUse) {
		t.Fatalf("a second opener: %v", err)
	}
	mustAppend(t, l, "c1", "still mine")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, Options{})
}

func TestManyWritersOneChainEach(t *testing.T) {
	dir := testDir(t)
	l := mustOpen(t, dir, Options{SegmentBytes: 4 << 10, JournalBytes: 32 << 10})
	const cells, each = 64, 40
	var wg sync.WaitGroup
	for c := range cells {
		for range 2 { // two writers a cell
			wg.Go(func() {
				for i := range each / 2 {
					body := note("x")
					if i%3 == 0 {
						body = kind.Exec{Path: "/bin/true", Decision: "allow"}
					}
					if _, err := l.Append(context.Background(), Entry{Cell: fmt.Sprint("c", c), Body: body}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	next := map[string]Record{}
	for _, r := range readAll(t, dir, Filter{}) {
		last := next[r.Cell]
		want := last.Hash
		if last.Seq == 0 {
			want = entry.Genesis(r.Cell)
		}
		if r.Seq != last.Seq+1 || r.Prev != want {
			t.Fatalf("cell %s: entry %d after %d", r.Cell, r.Seq, last.Seq)
		}
		next[r.Cell] = r
	}
	if len(next) != cells {
		t.Fatalf("%d cells", len(next))
	}
	for c, r := range next {
		if r.Seq != each {
			t.Errorf("cell %s has %d entries", c, r.Seq)
		}
	}
	if files, _ := entry.Parts(dir); len(files) < 3 {
		t.Errorf("%d journal files: it does not rotate", len(files))
	}
}

func TestSealCadence(t *testing.T) {
	dir := testDir(t)
	clock := newHandClock()
	l := mustOpen(t, dir, Options{Clock: clock, SegmentBytes: 1000})
	mustAppend(t, l, "c1", "young")
	clock.turn(59 * time.Second)
	if err := l.sealer.wait(&chain{first: 1}); err != nil { // a turn of the sealer
		t.Fatal(err)
	}
	if n := len(sealsOf(t, l)); n != 0 {
		t.Fatalf("%d seals of a young segment", n)
	}
	clock.turn(time.Second)
	_ = l.sealer.wait(&chain{first: 1})
	if n := len(sealsOf(t, l)); n != 1 {
		t.Fatalf("%d seals at 60 s", n)
	}
	for range 5 {
		mustAppend(t, l, "c1", "a text of some length, so that five of them pass a thousand bytes")
	}
	_ = l.sealer.wait(&chain{first: 1})
	if n := len(sealsOf(t, l)); n < 2 {
		t.Fatalf("%d seals after more than a segment's bytes", n)
	}
	mustAppend(t, l, "c2", "ends")
	before := len(sealsOf(t, l))
	if err := l.EndCell("c2"); err != nil {
		t.Fatal(err)
	}
	if seals := sealsOf(t, l); len(seals) != before+1 || seals[before].Last != 1 {
		t.Fatalf("%d seals after the cell's end", len(seals))
	}
	if err := l.EndCell("nobody"); err != nil {
		t.Error(err)
	}
}

func sealsOf(t *testing.T, l *Ledger) []kind.Seal {
	t.Helper()
	f, err := os.Open(l.sealsPath())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []kind.Seal
	r := entry.NewReader(f, 0)
	for {
		raw, err := r.Next()
		if err != nil {
			return out
		}
		_, s, err := l.Key().Verify(raw)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
}

func TestFollow(t *testing.T) {
	l := mustOpen(t, testDir(t), Options{})
	mustAppend(t, l, "c1", "0")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := make(chan uint64)
	go func() {
		defer close(got)
		for r, err := range l.Follow(ctx, Filter{Cell: "c1"}) {
			if err != nil {
				t.Error(err)
			}
			got <- r.Seq
		}
	}()
	for i := range 20 {
		if seq := <-got; seq != uint64(i+1) {
			t.Fatalf("followed %d, want %d", seq, i+1)
		}
		mustAppend(t, l, "c2", "other")
		mustAppend(t, l, "c1", "next")
	}
	<-got
	cancel()
	if _, more := <-got; more {
		t.Error("followed on after its context ended")
	}
}

func TestRefusesOtherKeyAndBadInput(t *testing.T) {
	dir := testDir(t)
	l := mustOpen(t, dir, Options{})
	mustAppend(t, l, "c1", "x")
	for _, e := range []Entry{{Cell: "", Body: note("")}, {Cell: "a\nb", Body: note("")}, {Cell: "c", Body: kind.Seal{}},
		{Cell: "c", Body: kind.Note{By: "\xff"}}, {Cell: "c", Body: note(string(make([]byte, entry.MaxSize)))}} {
		if _, err := l.Append(context.Background(), e); err == nil {
			t.Errorf("%.40q was recorded", e.Cell)
		}
	}
	if seq := mustAppend(t, l, "c1", "y"); seq != 2 {
		t.Errorf("seq %d after refusals", seq)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Append(ctx, Entry{Cell: "c1", Body: note("")}); !errors.Is(err, context.Canceled) {
		t.Errorf("append for nobody: %v", err)
	}
	_ = l.Close()
	if _, err := Open(dir, Options{Keys: t.TempDir()}); err == nil {
		t.Error("a ledger whose key is lost was given a new one")
	}
	other := t.TempDir()
	if _, err := seal.Load(other, true); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{Keys: other}); !errors.Is(err, seal.ErrKey) {
		t.Errorf("another key: %v", err)
	}
}

func TestFilter(t *testing.T) {
	dir := testDir(t)
	clock := newHandClock()
	l := mustOpen(t, dir, Options{Clock: clock})
	begin := clock.Now()
	for _, b := range []kind.Body{
		kind.FlowIntent{Decision: "allow"}, kind.FlowDenied{Decision: "block"}, kind.FlowOutcome{Decision: "fail"},
		kind.ApprovalOpened{}, kind.CellStopped{},
	} {
		for _, cell := range []string{"a", "b"} {
			if _, err := l.Append(context.Background(), Entry{Cell: cell, Body: b}); err != nil {
				t.Fatal(err)
			}
		}
		clock.turn(time.Second)
	}
	for _, c := range []struct {
		f    Filter
		want int
	}{
		{Filter{}, 10}, {Filter{Cell: "a"}, 5}, {Filter{Cell: "none"}, 0},
		{Filter{Kinds: []kind.Kind{kind.KindFlowIntent, kind.KindCellStopped}}, 4},
		{Filter{Decision: kind.Deny}, 4}, {Filter{Decision: kind.Allow, Cell: "b"}, 1}, {Filter{Decision: kind.Ask}, 2},
		{Filter{Since: begin.Add(3 * time.Second)}, 4}, {Filter{Until: begin.Add(time.Second)}, 2}, {Filter{Cell: "a", After: 3}, 2},
	} {
		if got := readAll(t, dir, c.f); len(got) != c.want {
			t.Errorf("%+v: %d entries, want %d", c.f, len(got), c.want)
		}
	}
	for range Read(dir, Filter{}) {
		break // a reader may stop
	}
}
