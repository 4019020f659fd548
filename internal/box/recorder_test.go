package box

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"skep.dev/skep/internal/boundary"
)

// batches is a daemon that keeps what it was sent.
type batches struct {
	mu   sync.Mutex
	hold chan struct{} // closed: requests are answered
	got  []int
}

func (b *batches) Record(_ context.Context, records [][]byte) error {
	<-b.hold
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, len(records))
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
	for len(r.ended) < n { // all wait before anybody sends
		runtime.Gosched()
	}
	wait.Go(func() {
		if err := r.Record(t.Context(), boundary.Record{Kind: boundary.Intent}); err != nil {
			t.Error(err)
		}
	})
	close(b.hold)
	go r.run(t.Context())
	wait.Wait()
	total := 0
	for _, size := range b.got {
		total += size
	}
	if total != n+1 || b.got[0] < 2 {
		t.Errorf("batches of %v: want %d in all, the first with outcomes beside the intent", b.got, n+1)
	}
}
