package boundary

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/route"
)

// Identity is who the cell is: the listener's word, never the agent's.
type Identity struct {
	Cell, Agent string
	Generation  uint64
}

// Gate decides, records and opens every flow of one cell. All fields are set
// before the first flow and not changed.
type Gate struct {
	Identity Identity
	Recorder Recorder
	Refusals *Refusals
	Internet Dest
	Model    Dest          // nil where the cell has no model right
	Desk     Dest          // answers what was refused (B230); nil where nobody does
	Inward   Dest          // where the cell's agent is reached; nil where it is not
	Denials  *Denials      // what it tells of; nil keeps none
	Flows    int           // how many may be open at once (B150)
	Bytes    *Bytes        // what they may carry; nil without a bound
	Idle     time.Duration // how long nothing may move in one; 0: IdleTCP
	Rate     *route.Bucket // of new flows; nil without a bound
	Door     *Door         // the kernel's, shut while nothing is let in; nil without one
	Now      func() time.Time
	Back     func(q flow.Request, rule string) // told that q took an answer for one flow and opened nothing; nil tells nobody

	policy  atomic.Pointer[policy.Policy]
	open    atomic.Int64
	udp     atomic.Int64 // of open
	inward  atomic.Int64 // deliveries, which are not of open
	living  living
	holding holding
	taken   taken
	live    sync.WaitGroup
}

// Install makes p the policy of every later Request, or changes nothing and says
// what is wrong with it (B88, B160). Open flows that p does not allow end (B161).
func (g *Gate) Install(p policy.Policy) error {
	if err := p.Check(); err != nil {
		return err
	}
	g.policy.Store(&p)
	g.judgeAgain()
	g.holding.tell()
	return nil
}

// Policy is the installed policy; the zero one, which allows nothing, before.
func (g *Gate) Policy() policy.Policy {
	if p := g.policy.Load(); p != nil {
		return *p
	}
	return policy.Policy{}
}

// Serve takes one attempt through the gate: identify, decide, record, open,
// account (B4). It owns from and returns when the flow is over.
func (g *Gate) Serve(ctx context.Context, q flow.Request, from Arrival) {
	g.live.Add(1)
	defer g.live.Done()
	begin := g.Now()

	q = g.identify(q)
	v, p, once := g.hold(ctx, q)
	if v.Allowed() {
		if why := g.enter(q); why != flow.None {
			v = flow.Verdict{Reason: why, Rule: v.Rule, Line: v.Line}
			if once {
				g.back(q, v.Rule)
			}
		} else {
			defer g.leave(q)
		}
	}
	r := Record{Kind: Intent, Time: begin, Request: q, Policy: p.version(), Decision: "allow", Verdict: v}
	if !v.Allowed() {
		from.Refuse(v.Refusal(), "")
		g.refuse(ctx, r)
		return
	}
	if err := g.record(ctx, r); err != nil {
		r.Verdict = flow.Verdict{Reason: endedOr(ctx, g.unrecorded(err)), Rule: v.Rule, Line: v.Line}
		if once {
			g.back(q, v.Rule)
		}
		from.Refuse(r.Verdict.Reason, "")
		g.refuse(ctx, r)
		return
	}
	ctx, one := g.begin(ctx, q, v.Rule, p)
	defer g.finish(one)
	permit := Permit{request: q, policy: p.value, bytes: g.budget(q, p), idle: g.Idle}
	up, err := g.dest(q).Open(ctx, permit)
	if err != nil {
		// The reason first: the reset may be what ends the agent, and with it the cell.
		var detail string
		r, detail = failed(ctx, r, err)
		from.Refuse(r.Verdict.Reason, detail)
		g.outcome(ctx, r)
		return
	}
	r.Setup = g.Now().Sub(begin)
	g.dialed(one, up.Address(), p)
	end := up.Carry(ctx, from.Open())
	// What would have allowed a request that was refused inside.
	if v := permit.DecideInner(end.Inner); end.Reason != flow.None && v.Reason == end.Reason {
		r.Verdict = v
	}
	g.account(ctx, r, up, end)
}

// Reject records an attempt that the route has refused before it was a whole Request,
// and answered: q holds what could be read of it.
func (g *Gate) Reject(ctx context.Context, q flow.Request, why flow.Reason) {
	g.live.Add(1)
	defer g.live.Done()
	g.refuse(ctx, Record{Time: g.Now(), Request: g.identify(q), Policy: held{g.policy.Load()}.version(), Verdict: flow.Verdict{Reason: why}})
}

// identify writes the gate's own identity over whatever the route filled in.
func (g *Gate) identify(q flow.Request) flow.Request {
	q.Cell, q.Agent, q.Generation = g.Identity.Cell, g.Identity.Agent, g.Identity.Generation
	q.Inner = flow.Inner{}
	return q
}

// held is the policy under which one Request is decided.
type held struct{ value *policy.Policy }

func (h held) version() string {
	if h.value == nil {
		return ""
	}
	return h.value.Version
}

func (g *Gate) decide(q flow.Request) (flow.Verdict, held) {
	p := g.policy.Load()
	if p == nil {
		return flow.Verdict{Reason: flow.PolicyUnavailable}, held{}
	}
	return policy.Decide(q, *p), held{p}
}

// record writes within the bound of B4.
func (g *Gate) record(ctx context.Context, r Record) error {
	ctx, cancel := context.WithTimeout(ctx, RecordWait)
	defer cancel()
	return g.Recorder.Record(ctx, r)
}

// refuse records a refusal. A failed write leaves it a refusal: nothing was
// opened, and the count waits for the next try. The end of the cell does not
// break the write off, or a record that arrived would be written again.
func (g *Gate) refuse(ctx context.Context, r Record) {
	ctx = context.WithoutCancel(ctx)
	r.Kind = Denied
	r.Decision = r.Verdict.Refusal().Word()
	g.note(r)
	if !g.Refusals.Itemise() || g.record(ctx, r) != nil {
		g.Refusals.Add(r)
	}
}

// note keeps what the agent tried itself for it to read (B231).
func (g *Gate) note(r Record) {
	if r.Request.Direction == flow.Out {
		g.Denials.note(r)
	}
}

// dest picks the row of B70, or the way in; an allowed Request is in one of them.
func (g *Gate) dest(q flow.Request) Dest {
	dest := g.Internet
	switch row := policy.Dispatch(q); {
	case q.Direction == flow.In:
		dest = g.Inward
	case row == policy.RowModel:
		dest = g.Model
	case row == policy.RowDesk:
		dest = g.Desk
	}
	if dest == nil {
		return nowhere{}
	}
	return dest
}

// budget is what the bytes of a flow are taken from. What the cell's owner carries between
// his own host and it is no traffic of the agent's.
func (g *Gate) budget(q flow.Request, p held) *Bytes {
	if i, ok := policy.Opened(q, *p.value); ok && i.Person {
		return nil
	}
	return g.Bytes
}

func failed(ctx context.Context, r Record, err error) (Record, string) {
	why := &Failure{Reason: flow.DialFailed, Err: err}
	errors.As(err, &why)
	r.Verdict.Reason, r.Dropped = endedOr(ctx, why.Reason), why.Dropped
	return r, why.Detail
}

// endedOr is the reason of something that failed: that the cell ended meanwhile
// says more than what it looked like.
func endedOr(ctx context.Context, why flow.Reason) flow.Reason {
	if ctx.Err() != nil {
		return flow.Revoked
	}
	return why
}

func (g *Gate) account(ctx context.Context, r Record, up Upstream, end End) {
	r.Address, r.Dropped = up.Address(), up.Dropped()
	r.Up, r.Down = end.Up, end.Down
	r.Request.Inner = end.Inner
	r.Verdict.Reason = end.Reason
	g.outcome(ctx, r)
}

// outcome writes the second record of a flow (B190). The flow's own context may
// have ended with it, so the write does not depend on that.
func (g *Gate) outcome(ctx context.Context, r Record) {
	r.Kind = Outcome
	r.Duration = g.Now().Sub(r.Time)
	r.Decision = decisionOf(r.Verdict.Reason)
	switch r.Verdict.Reason {
	case flow.None, flow.IdleTimeout, flow.Revoked:
	default:
		g.note(r)
	}
	// The flow keeps its place until it is written, so that as many can wait as may be
	// open. An error is the end of the box: the ledger then has a flow without an end,
	// which says as much.
	_ = g.Recorder.Record(context.WithoutCancel(ctx), r)
}

// Open is how many flows are open, or wait for their last record.
func (g *Gate) Open() int { return int(g.open.Load() + g.inward.Load()) }

// Full is why no new flow has room now, or None.
func (g *Gate) Full() flow.Reason {
	switch {
	case g.Bytes.Exhausted():
		return flow.BudgetExhausted
	case g.open.Load() >= int64(g.Flows):
		return flow.Busy
	}
	return flow.None
}

// enter takes a place for a new flow, or says why there is none. With the last one the
// door is shut, before anybody tries.
func (g *Gate) enter(q flow.Request) flow.Reason {
	if q.Direction == flow.In {
		return g.admit(q)
	}
	if g.Bytes.Exhausted() {
		g.Door.Turn()
		return flow.BudgetExhausted
	}
	n := g.open.Add(1)
	if q.Transport == flow.UDP {
		g.udp.Add(1)
	}
	if n > int64(g.Flows) || g.udp.Load() > OpenUDP && q.Transport == flow.UDP {
		g.leave(q)
		return flow.Busy
	}
	if g.Rate != nil {
		ok := g.Rate.Take()
		if wait := g.Rate.Wait(); wait > 0 {
			g.Door.Pause(flow.RateLimited, wait)
		}
		if !ok {
			g.leave(q)
			return flow.RateLimited
		}
	}
	if n == int64(g.Flows) {
		g.Door.Turn()
	}
	return flow.None
}

// admit takes a place for a delivery: they have a budget of their own, so that callers do
// not keep the agent from calling.
func (g *Gate) admit(q flow.Request) flow.Reason {
	switch {
	case g.inward.Add(1) > OpenIngress:
		g.leave(q)
		return flow.Busy
	case g.budget(q, held{g.policy.Load()}).Exhausted():
		g.leave(q)
		return flow.BudgetExhausted
	}
	return flow.None
}

func (g *Gate) leave(q flow.Request) {
	if q.Direction == flow.In {
		g.inward.Add(-1)
		return
	}
	if q.Transport == flow.UDP {
		g.udp.Add(-1)
	}
	if g.open.Add(-1) == int64(g.Flows)-1 {
		g.Door.Turn()
	}
}

// unrecorded is the reason of an intent that was not written. Where that is for want
// of room beyond this cell, others need not try for a moment.
func (g *Gate) unrecorded(err error) flow.Reason {
	var full *NoRoom
	if !errors.As(err, &full) {
		return flow.RecordUnavailable
	}
	g.Door.Pause(full.Reason, OwnerPause)
	return full.Reason
}

// Wait returns when every flow is over and recorded.
func (g *Gate) Wait() { g.live.Wait() }

// nowhere stands for the model gateway of a cell that has a right but no gateway.
type nowhere struct{}

func (nowhere) Open(context.Context, Permit) (Upstream, error) {
	return nil, &Failure{Reason: flow.NoProvider}
}
