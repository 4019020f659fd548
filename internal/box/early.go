package box

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/box/held"
	"skep.dev/skep/internal/box/pause"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/route"
)

const (
	flushEvery = time.Second
	counterBy  = time.Second // to read the kernel's counter
	// How long the end waits for log messages that are still on their way; the
	// warden asks the kernel to send each at once.
	lastLog = 200 * time.Millisecond
	overBy  = time.Second // for the kernel to refuse what it held
)

// early brings the kernel's refusals to the gate: those that it logged, and the
// number of those that it did not (B17).
type early struct {
	log    *os.File
	kernel *kernel
	gate   *boundary.Gate
	table  *route.Table
	held   *held.Flows

	counting sync.Mutex // held while the kernel's counter is read and accounted for

	mu    sync.Mutex
	tally boundary.Tally
	asks  int // how often the kernel's counter is still to be read
}

func newEarly(log *os.File, k *kernel, g *boundary.Gate, t *route.Table) *early {
	e := &early{log: log, kernel: k, gate: g, table: t}
	e.held = &held.Flows{Judge: func(r route.Refusal, first bool) flow.Verdict { return g.Hold(r, e.host(r), first) }, Refuse: e.over}
	return e
}

// asksAfterLog is how many seconds the counter is read after the log said
// something: longer than the log may lag. A burst of refusals always begins with a
// logged one, so that the counter of a quiet cell need not be asked for: with
// hundreds of idle cells, that was most of what they did.
const asksAfterLog = int(boundary.Lag/flushEvery) + 3

// read takes the log until it is closed, its deadline has passed, or another box has it.
func (e *early) read(p *pause.Pause) error {
	if err := p.Loop(e.log, e.take); !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

func (e *early) take() error {
	buf := make([]byte, 64<<10)
	for {
		n, err := e.log.Read(buf)
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case errors.Is(err, syscall.ENOBUFS):
			e.heard(0) // the kernel dropped messages; the counter has them
			continue
		case err != nil:
			return fmt.Errorf("read the early gate's log: %w", err)
		}
		// What does not parse is in the counter, too.
		refusals, _ := route.ParseLog(buf[:n])
		refused := 0
		for _, r := range refusals {
			if r.Held {
				e.held.Seen(r)
				continue
			}
			e.gate.Early(r, e.host(r))
			refused++
		}
		e.heard(refused)
	}
}

// host is the name behind a destination, or empty.
func (e *early) host(r route.Refusal) string {
	host, _ := e.table.Name(r.Dst.Addr().Unmap())
	return host
}

// over has the kernel refuse a connect that it holds.
func (e *early) over(one held.Flow) {
	s := span{in: overSet, transport: flow.TCP, first: one.To.Addr().Unmap(), ports: right.PortRange{First: one.From, Last: one.From}}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), overBy)
		defer cancel()
		_ = e.kernel.change(ctx, opAdd, []span{s}) // a warden that is gone has no cell
	}()
}

func (e *early) heard(refusals int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tally.Logged(refusals)
	e.asks = asksAfterLog
}

// watch writes what is due every second, until ctx ends.
func (e *early) watch(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if e.due() {
				e.count(ctx)
			}
			_ = e.gate.Refusals.Flush(ctx, false) // what fails waits for the next time
		case <-e.gate.Refusals.Urgent():
			_ = e.gate.Refusals.Flush(ctx, false)
		case <-ctx.Done():
			return
		}
	}
}

// due tells whether the counter may have what the log has not.
func (e *early) due() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asks == 0 {
		return false
	}
	e.asks--
	return true
}

func (e *early) count(ctx context.Context) {
	e.counting.Lock()
	defer e.counting.Unlock()
	counter, err := e.counter(ctx)
	if err != nil {
		return
	}
	e.mu.Lock()
	missing := e.tally.Read(counter, time.Now())
	e.mu.Unlock()
	e.gate.Unlogged(missing)
}

func (e *early) counter(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, counterBy)
	defer cancel()
	return e.kernel.refused(ctx)
}

// finish makes the recorded counts equal to the kernel's: it gives the log time
// to arrive, stops reading, and counts what is still missing. done is closed when
// read has returned. A kernel that cannot be asked any more leaves what is known.
func (e *early) finish(ctx context.Context, done <-chan struct{}) error {
	counter, err := e.counter(ctx)
	e.mu.Lock()
	wait := err == nil && e.tally.Behind(counter)
	e.mu.Unlock()
	deadline := time.Now()
	if wait {
		deadline = deadline.Add(lastLog)
	}
	if e.log.SetReadDeadline(deadline) != nil {
		_ = e.log.Close()
	}
	<-done
	if err == nil {
		e.mu.Lock()
		missing := e.tally.Last(counter)
		e.mu.Unlock()
		e.gate.Unlogged(missing)
	}
	return e.gate.Refusals.Flush(ctx, true)
}
