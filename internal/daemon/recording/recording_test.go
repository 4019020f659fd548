package recording

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/verify"
)

// wall is the clock of a ledger that never seals by itself here.
type wall struct{}

func (wall) Now() time.Time                                { return time.Now() }
func (wall) AfterFunc(time.Duration, func()) (stop func()) { return func() {} }

func open(t *testing.T) *Record {
	t.Helper()
	dir := t.TempDir()
	l, err := ledger.Open(filepath.Join(dir, "ledger"), ledger.Options{Keys: filepath.Join(dir, "keys"), Clock: wall{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &Record{Ledger: l, Dir: filepath.Join(dir, "ledger"), Log: slog.New(slog.DiscardHandler)}
}

func TestReadsBackOfOneAndOfAll(t *testing.T) {
	r := open(t)
	for _, cell := range []string{"one", "two"} {
		if err := r.Append(cell, &kind.Note{By: cell}); err != nil {
			t.Fatal(err)
		}
	}
	for cell, want := range map[string]int{"one": 1, "": 2} {
		n := 0
		for e, err := range r.Read(cell, []kind.Kind{kind.KindNote}) {
			if err != nil || e.Body.(*kind.Note).By != e.Cell {
				t.Errorf("%+v, %v", e, err)
			}
			n++
		}
		if n != want {
			t.Errorf("%d entries of %q, want %d", n, cell, want)
		}
	}
}

// Whoever asks after an end was told finds its seal written.
func TestSealThatIsDueIsWaitedFor(t *testing.T) {
	r := open(t)
	ask := func(ctx context.Context) error {
		_, err := r.Sealed(ctx, connect.NewRequest(&skepv1.LedgerSealRequest{}))
		return err
	}
	if err := ask(t.Context()); err != nil {
		t.Fatalf("nothing is due: %v", err)
	}
	written := r.Due("cell")
	if err := r.Append("cell", &kind.Note{By: "cell"}); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left waits: %v", err)
	}
	asked, answer := make(chan struct{}), make(chan error)
	go func() {
		close(asked)
		answer <- ask(t.Context())
	}()
	<-asked
	if report, err := verify.Ledger(r.Dir, verify.Options{}); err != nil || report.Status != verify.UnsignedTail {
		t.Errorf("%v, %v", report, err)
	}
	select {
	case err := <-answer:
		t.Errorf("answered before the seal was written: %v", err)
	default:
	}
	r.Seal("cell")
	written()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	if report, err := verify.Ledger(r.Dir, verify.Options{}); err != nil || report.Status != verify.Valid {
		t.Errorf("%v, %v", report, err)
	}
}
