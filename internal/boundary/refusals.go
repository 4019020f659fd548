package boundary

import (
	"context"
	"errors"
	"sync"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
)

// Refusals gathers refusals so that identical ones within Coalesce become one
// record with a count, and none is lost (B17). It is safe for concurrent use.
type Refusals struct {
	recorder Recorder
	now      func() time.Time
	rate     *route.Bucket

	urgent chan struct{}

	mu      sync.Mutex
	waiting map[refusalKey]*waiting
	order   []refusalKey // those that are due first are first
	asked   map[asked]time.Time
}

// waiting is a record and when it is to be written.
type waiting struct {
	Record
	due time.Time
}

// refusalKey is what makes two refusals identical.
type refusalKey struct {
	held        bool
	destination string
	transport   flow.Transport
	reason      flow.Reason
}

// asked is a question as it was put under one policy: another one may have an answer to it.
type asked struct {
	refusalKey
	policy string
}

// NewRefusals gathers for one recorder; now is the clock.
func NewRefusals(recorder Recorder, now func() time.Time) *Refusals {
	return &Refusals{recorder: recorder, now: now, rate: route.NewBucket(Itemised, now),
		waiting: map[refusalKey]*waiting{}, asked: map[asked]time.Time{}, urgent: make(chan struct{}, 1)}
}

// Urgent has a value when something is due at once: a person is to be asked (B140).
func (r *Refusals) Urgent() <-chan struct{} { return r.urgent }

// Itemise reports whether one more refusal may have a record of its own now;
// above Itemised in a second they are counted.
func (r *Refusals) Itemise() bool { return r.rate.Take() }

// Add counts one refusal, or as many as its Request stands for. With too many
// different ones waiting, it is counted without its destination.
func (r *Refusals) Add(rec Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := refusalKey{rec.Kind == Held, rec.Request.Destination(), rec.Request.Transport, rec.Verdict.Refusal()}
	if r.waiting[key] == nil && len(r.waiting) >= WaitingRecords {
		key = refusalKey{key.held, "*", rec.Request.Transport, rec.Verdict.Refusal()}
		rec.Request = anonymous(rec.Request)
	}
	if have := r.waiting[key]; have != nil {
		have.Request.Count += rec.Request.Count
		return
	}
	rec.Time = r.now()
	if r.asks(key, rec) {
		r.waiting[key] = &waiting{rec, rec.Time}
		r.order = append([]refusalKey{key}, r.order...)
		select {
		case r.urgent <- struct{}{}:
		default:
		}
		return
	}
	r.waiting[key] = &waiting{rec, rec.Time.Add(Coalesce)}
	r.order = append(r.order, key)
}

// asks reports whether a refusal puts a question to a person for the first time in a
// while: that does not wait to be counted. It is for holders of mu.
func (r *Refusals) asks(key refusalKey, rec Record) bool {
	if rec.Verdict.Decision != flow.Ask {
		return false
	}
	for other, at := range r.asked {
		if rec.Time.Sub(at) >= Coalesce {
			delete(r.asked, other)
		}
	}
	this := asked{key, rec.Policy}
	if _, is := r.asked[this]; is || len(r.asked) >= WaitingRecords {
		return false
	}
	r.asked[this] = rec.Time
	return true
}

// anonymous keeps who and how many, and drops where to.
func anonymous(q flow.Request) flow.Request {
	return flow.Request{ID: q.ID, Cell: q.Cell, Agent: q.Agent, Generation: q.Generation, Direction: q.Direction, Wire: q.Wire, Transport: q.Transport, Count: q.Count}
}

// Flush writes the records whose window is over, or all of them. What cannot be
// written waits for the next call.
func (r *Refusals) Flush(ctx context.Context, all bool) error {
	var errs []error
	for _, rec := range r.due(all) {
		rec.Decision = "ask"
		if rec.Kind != Held {
			rec.Kind, rec.Decision = Denied, rec.Verdict.Refusal().Word()
		}
		ctx, cancel := context.WithTimeout(ctx, RecordWait)
		if err := r.recorder.Record(ctx, rec); err != nil {
			errs = append(errs, err)
			r.Add(rec)
		}
		cancel()
	}
	return errors.Join(errs...)
}

func (r *Refusals) due(all bool) []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Record
	for len(r.order) > 0 {
		rec := r.waiting[r.order[0]]
		if !all && r.now().Before(rec.due) {
			break
		}
		out = append(out, rec.Record)
		delete(r.waiting, r.order[0])
		r.order = r.order[1:]
	}
	return out
}

// Early takes one refusal that the kernel made and logged: it becomes a Request
// that is decided like any other, and counted (B17). host is the name behind a
// synthetic destination, or empty.
func (g *Gate) Early(e route.Refusal, host string) {
	q := g.early(e, host)
	v, p := g.decide(q)
	switch {
	case e.Transport == flow.Other:
		v = flow.Verdict{Reason: flow.TransportNotAllowed}
	case v.Allowed() && e.Shut:
		v = flow.Verdict{Reason: g.Door.Why(), Rule: v.Rule, Line: v.Line}
	case v.Allowed():
		// The address came before its name was admitted, or after it was withdrawn.
		v = flow.Verdict{Reason: flow.Busy, Rule: v.Rule, Line: v.Line}
	}
	r := Record{Time: g.Now(), Request: q, Policy: p.version(), Verdict: v}
	g.Denials.note(r)
	g.Refusals.Add(r)
}

// early is the Request of a packet that got no further than the kernel.
func (g *Gate) early(e route.Refusal, host string) flow.Request {
	q := flow.Request{
		ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: e.Transport, Port: e.Dst.Port(), Count: 1,
	}
	if host != "" {
		q.Name, q.Synthetic = host, e.Dst.Addr()
	} else {
		q.Addr = e.Dst.Addr().Unmap()
	}
	return g.identify(q)
}

// Unlogged counts n refusals of which the kernel kept only a number (B17).
func (g *Gate) Unlogged(n uint64) {
	if n == 0 {
		return
	}
	q := g.identify(flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.Other, Count: n})
	g.Refusals.Add(Record{Request: q, Policy: held{g.policy.Load()}.version(), Verdict: flow.Verdict{Reason: flow.NotOnAllowlist}})
}

// NoOriginal records a connection or datagram that came to the listener itself (B16).
func (g *Gate) NoOriginal(ctx context.Context, t flow.Transport) {
	q := g.identify(flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: t, Count: 1})
	g.refuse(ctx, Record{Time: g.Now(), Request: q, Policy: held{g.policy.Load()}.version(), Verdict: flow.Verdict{Reason: flow.NoOriginalDestination}})
}
