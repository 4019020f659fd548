package box

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
)

// batches is a daemon that keeps what it was sent.
type batches struct {
	mu      sync.Mutex
	hold    chan struct{} // closed: requests are answered
	broken  int           // so many requests fail first
	refuse  map[int]flow.Reason
	got     []int
	records [][]byte
}

func (b *batches) Record(records [][]byte, tell func(map[int]flow.Reason, error)) error {
	go func() {
		<-b.hold
		b.mu.Lock()
		if b.broken > 0 {
			b.broken--
			b.mu.Unlock()
			tell(nil, errors.New("disk full"))
			return
		}
		b.got, b.records = append(b.got, len(records)), append(b.records, records...)
		b.mu.Unlock()
		tell(b.refuse, nil)
	}()
	return nil
}

// The end of a flow is recorded with the next intent, or soon without one; many
// more than a batch lose none.
func TestOutcomesAreTakenAlong(t *testing.T) {
	b := &batches{hold: make(chan struct{})}
	r := newRecorder(b)
	const n = boundary.RecordBatch*2 + 1
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			if err := r.Record(t.Context(), boundary.Record{Kind: boundary.Outcome}); err != nil {
				t.Error(err)
			}
		})
	}
	for queued(r) < n { // all wait before anybody sends
		runtime.Gosched()
	}
	wait.Go(func() {
		if err := r.Record(t.Context(), boundary.Record{Kind: boundary.Intent}); err != nil {
			t.Error(err)
		}
	})
	close(b.hold)
	r.begin()
	wait.Wait()
	total := 0
	for _, size := range b.got {
		total += size
	}
	if total != n+1 || b.got[0] < 2 {
		t.Errorf("batches of %v: want %d in all, the first with outcomes beside the intent", b.got, n+1)
	}
}

func queued(r *recorder) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ended)
}

// An outcome that cannot be written is tried again, in its place, until it is (B190);
// an intent that waits meanwhile is refused.
func TestOutcomesAreTriedAgain(t *testing.T) {
	b := &batches{hold: make(chan struct{}), broken: 3}
	close(b.hold)
	r := newRecorder(b)
	const n = 50
	var wait sync.WaitGroup
	for i := range n {
		rec := boundary.Record{Kind: boundary.Outcome, Up: uint64(i) + 1}
		wait.Go(func() {
			if err := r.Record(t.Context(), rec); err != nil {
				t.Error(err)
			}
		})
		for queued(r) <= i {
			runtime.Gosched()
		}
	}
	r.begin()
	if err := r.Record(t.Context(), boundary.Record{Kind: boundary.Intent}); err == nil {
		t.Error("an intent was written on a full disk")
	}
	wait.Wait()
	var want, got [][]byte
	for i := range n {
		want = append(want, message(boundary.Record{Kind: boundary.Outcome, Up: uint64(i) + 1}))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	got = b.records
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the outcomes are not in their order, once each:\n%s", diff)
	}
}

// No more outcomes wait than there may be, and none waits for ever.
func TestOutcomesAreBounded(t *testing.T) {
	b := &batches{hold: make(chan struct{}), broken: 1 << 30}
	close(b.hold)
	r := newRecorder(b)
	r.begin()
	var wait sync.WaitGroup
	var over, many atomic.Int64
	for range boundary.WaitingRecords * 2 {
		wait.Go(func() {
			switch err := r.Record(t.Context(), boundary.Record{Kind: boundary.Outcome}); {
			case errors.Is(err, errOver):
				over.Add(1)
			case errors.Is(err, errTooManyRecords):
				if many.Add(1) == 1 {
					r.giveUp()
				}
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if over.Load() == 0 || many.Load() == 0 {
		t.Errorf("%d waited to the end, %d were too many", over.Load(), many.Load())
	}
}

// An intent for which there is no room is told apart from one that was not written.
func TestNoRoomForAnIntent(t *testing.T) {
	b := &batches{hold: make(chan struct{}), refuse: map[int]flow.Reason{0: flow.RateLimited}}
	close(b.hold)
	r := newRecorder(b)
	r.begin()
	var full *boundary.NoRoom
	if err := r.Record(t.Context(), boundary.Record{Kind: boundary.Intent}); !errors.As(err, &full) || full.Reason != flow.RateLimited {
		t.Error(err)
	}
}
