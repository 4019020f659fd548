package connector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/client"
	"skep.dev/skep/internal/boundary/link"
)

// writeWithin bounds a call of skepd: longer than the disk may take, so that an agent that
// waits for a record has been refused before (B150).
const writeWithin = 30 * time.Second

// Why a ledger takes nothing any more.
var (
	ErrStopped = errors.New("skepd was stopped, and the agents with it")
	ErrLost    = errors.New("skepd has ended; what it recorded is in the ledger")
)

// Ledger hands records to skepd, in whose ledger each life of an agent is a cell: a chain
// with seals of its own.
type Ledger struct {
	call    skepv1connect.SkepClient
	session string
	detach  func(agent string) // somebody stops its cell
	lost    chan struct{}
	why     error // set before lost is closed

	mu    sync.Mutex
	cells map[life]recorded
}

// life is one life of an agent.
type life struct {
	sandbox    string
	generation uint64
}

// recorded is where it is recorded.
type recorded struct{ cell, agent string }

// OpenLedger begins to record with the skepd at a socket. detach is called for an agent
// whose cell is to be stopped. The end of ctx is the end of every agent's cell.
func OpenLedger(ctx context.Context, socket string, detach func(agent string)) (*Ledger, error) {
	l := &Ledger{call: client.New(socket), detach: detach, lost: make(chan struct{}), cells: map[life]recorded{}}
	stream, err := l.serve(ctx)
	if err != nil {
		return nil, fmt.Errorf("record with skepd at %s (is it running? any `skep` command starts it): %w", socket, err)
	}
	go l.follow(ctx, stream)
	return l, nil
}

// serve opens the stream that is our life to skepd.
func (l *Ledger) serve(ctx context.Context) (*connect.ServerStreamForClient[skepv1.GuestEvent], error) {
	s, err := l.call.GuestServe(ctx, connect.NewRequest(&skepv1.GuestServeRequest{Session: l.session}))
	if err != nil {
		return nil, err
	}
	if !s.Receive() {
		return nil, errors.Join(errors.New("skepd does not answer"), s.Err(), s.Close())
	}
	l.session = s.Msg().Session
	return s, nil
}

// follow does what skepd asks for, and goes on with the one that takes its place.
func (l *Ledger) follow(ctx context.Context, s *connect.ServerStreamForClient[skepv1.GuestEvent]) {
	l.why = ErrLost
	for s.Receive() {
		switch e := s.Msg(); {
		case e.End:
			l.why = ErrStopped
			close(l.lost)
			for s.Receive() { // it ends when we do
			}
			return
		case e.Stop != "":
			if agent, ok := l.agentOf(e.Stop); ok {
				go l.detach(agent)
			}
		}
	}
	err := s.Err()
	_ = s.Close()
	if ctx.Err() == nil && client.IsAgain(err) {
		if next, err := l.serve(ctx); err == nil {
			l.follow(ctx, next)
			return
		}
	}
	close(l.lost)
}

// Lost is closed when skepd records nothing any more; Why says why.
func (l *Ledger) Lost() <-chan struct{} { return l.lost }

// Why is for who has seen Lost closed.
func (l *Ledger) Why() error { return l.why }

func (l *Ledger) agentOf(cell string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.cells {
		if r.cell == cell {
			return r.agent, true
		}
	}
	return "", false
}

func (l *Ledger) find(who identity) (recorded, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.cells[life{who.Sandbox, who.Generation}]
	if !ok {
		return r, fmt.Errorf("agent %s is not in the ledger", who.Sandbox)
	}
	return r, nil
}

// append implements Sink.
func (l *Ledger) append(who identity, records []link.Record) error {
	r, err := l.find(who)
	if err != nil {
		return err
	}
	q := &skepv1.GuestRecordRequest{Session: l.session, Cell: r.cell}
	for _, one := range records {
		q.Records = append(q.Records, flowRecord(who, r.cell, one))
	}
	return l.within(func(ctx context.Context) error {
		_, err := l.call.GuestRecord(ctx, connect.NewRequest(q))
		return err
	})
}

// event implements Sink: the first begins a cell, the last ends it.
func (l *Ledger) event(who identity, e event) error {
	if e.Kind == "attached" {
		return l.begin(who, e)
	}
	r, err := l.find(who)
	if err != nil {
		return err
	}
	switch e.Kind {
	case "detached", "died":
		err = l.within(func(ctx context.Context) error {
			_, err := l.call.GuestEnd(ctx, connect.NewRequest(&skepv1.GuestEndRequest{Session: l.session, Cell: r.cell, Died: e.Kind == "died", Why: e.Why}))
			return err
		})
		l.mu.Lock()
		delete(l.cells, life{who.Sandbox, who.Generation})
		l.mu.Unlock()
		return err
	}
	text := e.Kind
	if e.Policy != "" {
		text += ": policy " + e.Policy
	}
	return l.within(func(ctx context.Context) error {
		_, err := l.call.GuestNote(ctx, connect.NewRequest(&skepv1.GuestNoteRequest{Session: l.session, Cell: r.cell, Text: text}))
		return err
	})
}

func (l *Ledger) begin(who identity, e event) error {
	return l.within(func(ctx context.Context) error {
		a, err := l.call.GuestBegin(ctx, connect.NewRequest(&skepv1.GuestBeginRequest{
			Session: l.session, Agent: who.Agent, ExternalId: who.ExternalID, Identity: who.Meta.Identity, Listener: who.Listener,
			Generation: who.Generation, PoolSlice: who.Slice, Policy: e.Policy, Rules: e.rules,
		}))
		if err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cells[life{who.Sandbox, who.Generation}] = recorded{a.Msg.Cell, who.Agent}
		return nil
	})
}

func (l *Ledger) within(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeWithin)
	defer cancel()
	if err := call(ctx); err != nil {
		return fmt.Errorf("record with skepd: %w", err)
	}
	return nil
}

// flowRecord is a record in the form of a native box's.
func flowRecord(who identity, cell string, r link.Record) *skepv1.FlowRecord {
	out := &skepv1.FlowRecord{
		Kind: map[string]skepv1.FlowRecord_Kind{
			"intent": skepv1.FlowRecord_KIND_INTENT, "outcome": skepv1.FlowRecord_KIND_OUTCOME, "denied": skepv1.FlowRecord_KIND_DENIED,
		}[r.Kind],
		UnixNanos: r.Time.UnixNano(), Flow: r.Flow, Connection: r.Connection, Cell: cell, Agent: who.Agent, Generation: who.Generation, Policy: r.Policy,
		Listener: who.Listener, Wire: r.Wire, Transport: r.Transport, Direction: r.Direction, Destination: r.Destination, Address: r.Address, Peer: r.Peer,
		Rule: r.Rule, Line: uint32(max(r.Line, 0)), Decision: r.Decision, Reason: r.Reason, AllowWith: r.AllowWith,
		Count: r.Count, Dropped: uint32(max(r.Dropped, 0)), Milliseconds: uint64(max(r.Millis, 0)),
	}
	if r.Inner != nil {
		out.InnerProtocol, out.InnerName, out.InnerAlpn = r.Inner.Protocol, r.Inner.Name, r.Inner.ALPN
	}
	if r.Bytes != nil {
		out.BytesUp, out.BytesDown = r.Bytes.Up, r.Bytes.Down
	}
	return out
}
