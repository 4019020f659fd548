package tunneled

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/boundary/link"
)

const (
	batches  = 2 // under way at once: while one becomes durable, the next is gathered
	tryAgain = 100 * time.Millisecond
)

var (
	errTooManyRecords = errors.New("too many records wait for the connector")
	errNotWritten     = errors.New("the connector could not write the record")
	errOver           = errors.New("the boundary has ended")
)

// recorder appends through the connector, many records in one message.
type recorder struct {
	conn   *link.Conn
	denied atomic.Uint64

	mu      sync.Mutex
	work    *sync.Cond // something waits, or a batch is free, or it is over
	waiting []*pending
	flying  map[uint64][]*pending
	last    uint64
	over    bool
}

type pending struct {
	record  link.Record
	outcome bool
	done    chan error // of one
}

func newRecorder(conn *link.Conn) *recorder {
	r := &recorder{conn: conn, flying: map[uint64][]*pending{}}
	r.work = sync.NewCond(&r.mu)
	return r
}

// Record returns nil when the record is durable. One that ctx left behind may still
// become durable; the caller takes it as not written. An outcome is tried until it is
// written or the boundary ends.
func (r *recorder) Record(ctx context.Context, rec boundary.Record) error {
	p := &pending{record: link.RecordOf(rec), outcome: rec.Kind == boundary.Outcome, done: make(chan error, 1)}
	if rec.Kind == boundary.Denied {
		r.denied.Add(rec.Request.Count)
	}
	return r.write(ctx, p)
}

// write waits until it is durable.
func (r *recorder) write(ctx context.Context, p *pending) error {
	if err := r.add(p, p.outcome); err != nil {
		return err
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for a record: %w", ctx.Err())
	}
}

// add queues a record; must is for one that has a flow's place, of which there are not
// more than WaitingRecords.
func (r *recorder) add(p *pending, must bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return errOver
	case !must && len(r.waiting) >= boundary.WaitingRecords:
		return errTooManyRecords
	}
	r.waiting = append(r.waiting, p)
	r.work.Signal()
	return nil
}

// run sends what waits until it is over.
func (r *recorder) run() error {
	for {
		number, batch := r.next()
		if batch == nil {
			return nil
		}
		records := make([]link.Record, len(batch))
		for i, p := range batch {
			records[i] = p.record
		}
		if err := r.conn.Send(link.Word{Batch: &link.Batch{Number: number, Records: records}}); err != nil {
			return fmt.Errorf("send records: %w", err)
		}
	}
}

func (r *recorder) next() (uint64, []*pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.over && (len(r.waiting) == 0 || len(r.flying) == batches) {
		r.work.Wait()
	}
	if r.over {
		return 0, nil
	}
	n := min(len(r.waiting), link.MaxRecords)
	batch := append([]*pending(nil), r.waiting[:n]...)
	r.waiting = append(r.waiting[:0], r.waiting[n:]...)
	r.last++
	r.flying[r.last] = batch
	return r.last, batch
}

// wrote is the answer to a batch.
func (r *recorder) wrote(w link.Wrote) {
	r.mu.Lock()
	batch := r.flying[w.Batch]
	delete(r.flying, w.Batch)
	r.work.Signal()
	r.mu.Unlock()
	for _, p := range batch {
		switch {
		case w.OK:
			p.done <- nil
		case p.outcome:
			time.AfterFunc(tryAgain, func() {
				if err := r.add(p, true); err != nil {
					p.done <- err
				}
			})
		default:
			p.done <- errNotWritten
		}
	}
}

// giveUp ends the waiting of all that is not written.
func (r *recorder) giveUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.over = true
	for _, p := range r.waiting {
		p.done <- errOver
	}
	for _, batch := range r.flying {
		for _, p := range batch {
			p.done <- errOver
		}
	}
	r.waiting, r.flying = nil, nil
	r.work.Broadcast()
}
