package box

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
)

// senders is how many requests to the daemon are under way at once: while one
// batch becomes durable, the next is gathered.
const senders = 4

// outcomeWait is how long the record of a flow's end may wait for a record that
// gates something: it travels and is made durable with that one. Alone it would
// keep the next flow's intent waiting for a sync of its own.
const outcomeWait = 5 * time.Millisecond

var errTooManyRecords = errors.New("too many records wait for the daemon")

// appender makes records durable, each in its wire form.
type appender interface {
	Record(ctx context.Context, records [][]byte) error
}

// recorder appends through the daemon, many records in one request (B192).
type recorder struct {
	daemon  appender
	waiting chan pending
	ended   chan pending  // outcomes, taken along with what waits
	due     chan struct{} // there is an outcome
	once    sync.Once
}

type pending struct {
	record []byte
	done   chan error
}

func newRecorder(daemon appender) *recorder {
	return &recorder{
		daemon: daemon, waiting: make(chan pending, boundary.WaitingRecords),
		ended: make(chan pending, boundary.WaitingRecords), due: make(chan struct{}, 1),
	}
}

// Record returns nil when the daemon has made the record durable. One that ctx
// left behind may still become durable; the caller treats it as not written.
func (r *recorder) Record(ctx context.Context, rec boundary.Record) error {
	p := pending{message(rec), make(chan error, 1)}
	queue := r.waiting
	if rec.Kind == boundary.Outcome {
		queue = r.ended
	}
	select {
	case queue <- p:
	default:
		return errTooManyRecords
	}
	if rec.Kind == boundary.Outcome {
		r.tell()
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for a record: %w", ctx.Err())
	}
}

func (r *recorder) tell() {
	select {
	case r.due <- struct{}{}:
	default: // it is known already
	}
}

// run sends batches until ctx ends.
func (r *recorder) run(ctx context.Context) {
	r.once.Do(func() { go r.late(ctx) })
	for {
		select {
		case p := <-r.waiting:
			r.deliver(ctx, []pending{p})
		case <-ctx.Done():
			return
		}
	}
}

// late sends the outcomes that nothing has taken along in time, until ctx ends.
func (r *recorder) late(ctx context.Context) {
	for {
		select {
		case <-r.due:
		case <-ctx.Done():
			return
		}
		wait := time.NewTimer(outcomeWait)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
		r.deliver(ctx, nil)
		if len(r.ended) > 0 { // more than one batch
			r.tell()
		}
	}
}

// deliver sends a batch with all that waits beside it.
func (r *recorder) deliver(ctx context.Context, batch []pending) {
gather:
	for len(batch) < boundary.RecordBatch {
		select {
		case p := <-r.waiting:
			batch = append(batch, p)
			continue
		default:
		}
		select {
		case p := <-r.ended:
			batch = append(batch, p)
		default:
			break gather
		}
	}
	if len(batch) == 0 {
		return
	}
	err := r.send(ctx, batch)
	for _, p := range batch {
		p.done <- err
	}
}

func (r *recorder) send(ctx context.Context, batch []pending) error {
	records := make([][]byte, len(batch))
	for i, p := range batch {
		records[i] = p.record
	}
	ctx, cancel := context.WithTimeout(ctx, boundary.RecordWait)
	defer cancel()
	if err := r.daemon.Record(ctx, records); err != nil {
		return fmt.Errorf("append %d records: %w", len(batch), err)
	}
	return nil
}

// message is the wire form of a record (B191), a FlowRecord. Every string in it is
// ours or normalised; the ledger stores it as a JSON string all the same.
func message(r boundary.Record) []byte {
	q, v := r.Request, r.Verdict
	connection, address := q.Conn.String(), ""
	if q.Conn == (flow.ID{}) {
		connection = "" // refused before there was one
	}
	if r.Address.IsValid() {
		address = r.Address.String()
	}
	m := make(writer, 0, 512)
	m.number(1, kindOf(r.Kind))
	m.number(2, uint64(r.Time.UnixNano()))
	for i, s := range [...]string{q.ID.String(), connection, q.Cell, q.Agent} {
		m.text(3+i, s)
	}
	m.number(7, q.Generation)
	for i, s := range [...]string{
		r.Policy, "native", q.Wire.String(), q.Transport.String(), q.Direction.String(), q.Destination(), address, q.Peer, v.Rule,
	} {
		m.text(8+i, s)
	}
	m.number(17, uint64(uint32(v.Line)))
	for i, s := range [...]string{r.Decision, v.Reason.Token(), v.AllowWith, q.Inner.Protocol.String(), q.Inner.Name, q.Inner.ALPN} {
		m.text(18+i, s)
	}
	for i, n := range [...]uint64{q.Count, uint64(uint32(r.Dropped)), r.Up, r.Down, uint64(r.Duration.Milliseconds())} {
		m.number(24+i, n)
	}
	return m
}

// kindOf is the number of a FlowRecord.Kind.
func kindOf(k boundary.Kind) uint64 {
	switch k {
	case boundary.Intent:
		return 1
	case boundary.Outcome:
		return 2
	case boundary.Denied:
		return 3
	}
	return 0
}
