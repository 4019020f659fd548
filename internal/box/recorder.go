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

const (
	// requests is how many requests to the daemon are under way at once: while one
	// batch becomes durable, the next is gathered.
	requests = 2

	// outcomeWait is how long the record of a flow's end may wait for a record that
	// gates something: it travels and is made durable with that one. Alone it would
	// keep the next flow's intent waiting for a sync of its own.
	outcomeWait = 5 * time.Millisecond

	// tryAgain is how long an outcome waits that could not be written.
	tryAgain = 100 * time.Millisecond
)

var (
	errTooManyRecords = errors.New("too many records wait for the daemon")
	errOver           = errors.New("the boundary has ended")
)

// appender makes records durable, each in its wire form, and then tells which of
// them were refused, or why nothing of them may be relied on. After an error of its
// own it tells nothing.
type appender interface {
	Record(records [][]byte, tell func(map[int]flow.Reason, error)) error
}

// recorder appends through the daemon, many records in one request (B192). It has no
// goroutine: whoever brings a record or an answer sends what waits.
type recorder struct {
	daemon appender

	mu       sync.Mutex
	begun    bool      // records may be sent
	over     bool      // outcomes are not tried any more
	waiting  []pending // what gates something
	ended    []pending // outcomes, taken along with what waits
	flying   [requests][]pending
	outcomes int  // all that are not answered
	timed    bool // ended is sent in a while
}

type pending struct {
	record  []byte
	outcome bool
	done    chan error
}

// tell answers once; what comes later is not heard.
func (p pending) tell(err error) {
	select {
	case p.done <- err:
	default:
	}
}

func newRecorder(daemon appender) *recorder { return &recorder{daemon: daemon} }

// Record returns nil when the daemon has made the record durable. One that ctx
// left behind may still become durable; the caller treats it as not written. An
// outcome that cannot be written is tried again, in its place, until giveUp.
func (r *recorder) Record(ctx context.Context, rec boundary.Record) error {
	p := pending{message(rec), rec.Kind == boundary.Outcome, make(chan error, 1)}
	if err := r.add(p); err != nil {
		return err
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for a record: %w", ctx.Err())
	}
}

func (r *recorder) add(p pending) error {
	r.mu.Lock()
	switch {
	case r.over:
		r.mu.Unlock()
		return errOver
	case p.outcome && r.outcomes >= boundary.WaitingRecords, len(r.waiting) >= boundary.WaitingRecords:
		r.mu.Unlock()
		return errTooManyRecords
	case p.outcome:
		r.outcomes++
		r.ended = append(r.ended, p)
		r.later(outcomeWait)
		r.mu.Unlock()
	default:
		r.waiting = append(r.waiting, p)
		r.send(false)
	}
	return nil
}

// begin sends what waits, and from now on what comes.
func (r *recorder) begin() {
	r.mu.Lock()
	r.begun = true
	r.send(len(r.ended) > 0)
}

// later sees to it that outcomes are sent in a while. mu is held.
func (r *recorder) later(wait time.Duration) {
	if r.timed || !r.begun || r.over {
		return
	}
	r.timed = true
	time.AfterFunc(wait, func() {
		r.mu.Lock()
		r.timed = false
		r.send(true)
	})
}

// send sends a batch, if a request is free and something gates; or if it is late, and
// outcomes have waited long enough. It is called with mu held, and releases it.
func (r *recorder) send(late bool) {
	at := r.free()
	if !r.begun || at < 0 || len(r.waiting) == 0 && !(late && len(r.ended) > 0) {
		r.mu.Unlock()
		return // with every request under way, the next answer sends more
	}
	batch := r.batch()
	r.flying[at] = batch
	if len(r.ended) > 0 {
		r.later(outcomeWait)
	}
	r.mu.Unlock()
	records := make([][]byte, len(batch))
	for i, p := range batch {
		records[i] = p.record
	}
	if err := r.daemon.Record(records, func(refused map[int]flow.Reason, err error) { r.answered(at, refused, err) }); err != nil {
		r.answered(at, nil, err)
	}
}

// free is a request that is not under way, -1 if all are. mu is held.
func (r *recorder) free() int {
	for i, batch := range r.flying {
		if batch == nil {
			return i
		}
	}
	return -1
}

// batch takes what waits, as much as one request may hold. mu is held.
func (r *recorder) batch() []pending {
	n := min(len(r.waiting), boundary.RecordBatch)
	m := min(len(r.ended), boundary.RecordBatch-n)
	batch := append(append(make([]pending, 0, n+m), r.waiting[:n]...), r.ended[:m]...)
	r.waiting, r.ended = rest(r.waiting, n), rest(r.ended, m)
	return batch
}

// rest drops the first n, and what they held.
func rest(queue []pending, n int) []pending {
	left := copy(queue, queue[n:])
	clear(queue[left:])
	return queue[:left]
}

// answered tells those of a batch, and sends what has gathered meanwhile.
func (r *recorder) answered(at int, refused map[int]flow.Reason, err error) {
	r.mu.Lock()
	batch := r.flying[at]
	r.flying[at] = nil
	if err != nil {
		err = fmt.Errorf("append %d records: %w", len(batch), err)
	}
	var again []pending
	for i, p := range batch {
		why, full := refused[i]
		switch {
		case p.outcome && err != nil && !r.over:
			again = append(again, p)
			continue
		case err != nil:
			p.tell(err)
		case full:
			p.tell(&boundary.NoRoom{Reason: why})
		default:
			p.tell(nil)
		}
		if p.outcome {
			r.outcomes--
		}
	}
	if len(again) > 0 {
		r.ended = append(again, r.ended...)
		r.later(tryAgain)
	} else if len(r.ended) > 0 {
		r.later(outcomeWait)
	}
	r.send(false)
}

// giveUp ends the waiting of outcomes that are not written yet.
func (r *recorder) giveUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for _, queue := range append([][]pending{r.waiting, r.ended}, r.flying[:]...) {
		for _, p := range queue {
			p.tell(errOver)
		}
	}
	r.waiting, r.ended = nil, nil
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
	for i, n := range [...]uint64{q.Count, uint64(uint32(r.Dropped)), r.Up, r.Down, uint64(r.Duration.Milliseconds()), uint64(r.Setup.Milliseconds())} {
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
	case boundary.Held:
		return 4
	}
	return 0
}
