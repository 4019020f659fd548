// Package guests gives agents that other runtimes run a place in the ledger: what their
// connector records is a chain of its own for each, with the seals of a cell's
// (boundary.md, B192, B210; decision 38).
//
// Its laws:
//   - A guest lives as long as its connector's stream, and no longer. Its end is recorded
//     once, by whoever comes first.
//   - Who a record is about was said when the guest began; a connector names none of
//     another's.
//   - What a call has acknowledged is durable.
package guests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	v1 "skep.dev/skep/api/skep/v1/skepv1connect"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/clocks"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/daemon/wire"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
)

// Bounds.
const (
	comeBack  = 10 * time.Second // for a connector, after skepd was replaced
	endWithin = 15 * time.Second // for one that was told to detach
	maxEvents = 64               // that one has not read
	maxText   = 4096             // bytes of one text of a connector's
	maxRules  = 1000             // B150
)

// House is what guests need of the daemon.
type House struct {
	Cells   *cells.Store
	Ledger  func() Ledger // of now: a replacement of skepd that fails opens another
	Clock   clocks.Clock
	Leaving func() <-chan struct{} // closed when another skepd takes our place
	Again   error                  // what a stream ends with then
	// Recorded is what the ledger has of a cell's start and end.
	Recorded func(id string) (started time.Time, end *kind.CellStopped, at time.Time, err error)
	Log      *slog.Logger
}

// Ledger takes what is to be durable.
type Ledger interface {
	AppendAll(ctx context.Context, entries []ledger.Entry) error
	EndCell(cell string) error
}

// Guests are the agents of all connectors.
type Guests struct {
	House
	book *ending.Book

	mu       sync.Mutex
	sessions map[string]*session
	live     map[string]*guest
	ending   bool
}

// session is a connector.
type session struct {
	events chan *skepv1.GuestEvent
	open   bool   // its stream is
	disarm func() // of the time in which it may come back
}

// guest is one that has not ended.
type guest struct {
	session string
	agent   string
	begin   time.Time
	ended   chan struct{}
	ending  bool
}

// New is without guests.
func New(h House) *Guests {
	g := &Guests{House: h, sessions: map[string]*session{}, live: map[string]*guest{}}
	g.book = &ending.Book{
		Append: g.appendLast, Seal: func(id string) error { return h.Ledger().EndCell(id) }, Cells: h.Cells, Now: h.Clock.Now, Log: h.Log,
		Changed: func(string) int64 { return -1 }, // what it wrote is the runtime's
	}
	return g
}

// appendLast records the end of a guest.
func (g *Guests) appendLast(cell string, body kind.Body) error {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	r, _ := g.Cells.Get(cell)
	e := ledger.Entry{Cell: cell, Body: body}
	if r.Guest != nil {
		e.Agent = r.Guest.Agent
	}
	return g.Ledger().AppendAll(ctx, []ledger.Entry{e})
}

// Mount adds the calls of connectors to the API, for whoever may make them.
func (g *Guests) Mount(mux *http.ServeMux, may peer.May) {
	o := wire.Options()
	for procedure, h := range map[string]http.Handler{
		v1.SkepGuestServeProcedure:  connect.NewServerStreamHandler(v1.SkepGuestServeProcedure, g.Serve, o...),
		v1.SkepGuestBeginProcedure:  connect.NewUnaryHandler(v1.SkepGuestBeginProcedure, g.Begin, o...),
		v1.SkepGuestRecordProcedure: connect.NewUnaryHandler(v1.SkepGuestRecordProcedure, g.Record, o...),
		v1.SkepGuestNoteProcedure:   connect.NewUnaryHandler(v1.SkepGuestNoteProcedure, g.Note, o...),
		v1.SkepGuestEndProcedure:    connect.NewUnaryHandler(v1.SkepGuestEndProcedure, g.Finish, o...),
	} {
		mux.Handle(procedure, may.Check(h))
	}
}

// Count is how many live.
func (g *Guests) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.live)
}

// Is tells whether another runtime runs a cell, or has.
func (g *Guests) Is(id string) bool {
	r, ok := g.Cells.Get(id)
	return ok && r.Guest != nil
}

// Lives tells whether a cell is a guest that has not ended.
func (g *Guests) Lives(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.live[id] != nil
}

// Keep writes the records of those that live as they are told.
func (g *Guests) Keep() error {
	g.mu.Lock()
	ids := slices.Collect(maps.Keys(g.live))
	g.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, g.Cells.Keep(id))
	}
	return errors.Join(errs...)
}

// Reconcile ends what an earlier skepd left, whose connectors have ended with it. After a
// replacement they come back, and what is not claimed in time is ended then.
func (g *Guests) Reconcile(inherited bool) error {
	for _, r := range g.Cells.All() {
		if r.Guest == nil || r.State.Ended() {
			continue
		}
		started, end, at, err := g.Recorded(r.ID)
		if err != nil {
			return err
		}
		if err := g.Cells.Set(r.ID, func(r *cells.Record) { r.Started = started }); err != nil {
			return err
		}
		live := &guest{session: r.Guest.Session, agent: r.Guest.Agent, begin: r.Created, ended: make(chan struct{})}
		switch {
		case end != nil:
			g.book.Tell(r.ID, at, end)
			g.book.Keep(r.ID)
		case inherited:
			g.mu.Lock()
			g.live[r.ID] = live
			if g.sessions[r.Guest.Session] == nil {
				g.wait(r.Guest.Session)
			}
			g.mu.Unlock()
		default:
			g.settle(r.ID, live, cells.Cause{Word: "daemon-died", Detail: "skepd ended before the agent was detached; its box ended with it"}, ending.Failed)
		}
	}
	return nil
}

// wait arms the time in which a connector may come back. mu is held.
func (g *Guests) wait(token string) {
	s := &session{events: make(chan *skepv1.GuestEvent, maxEvents)}
	s.disarm = g.Clock.AfterFunc(comeBack, func() { g.lost(token, "its connector did not come back after skepd was replaced") })
	g.sessions[token] = s
}

// Serve is a connector's stream.
func (g *Guests) Serve(ctx context.Context, q *connect.Request[skepv1.GuestServeRequest], out *connect.ServerStream[skepv1.GuestEvent]) error {
	token, s, err := g.enter(q.Msg.Session)
	if err != nil {
		return err
	}
	leaving := g.Leaving()
	err = out.Send(&skepv1.GuestEvent{Session: token})
	for err == nil {
		select {
		case e := <-s.events:
			err = out.Send(e)
		case <-leaving:
			g.mu.Lock()
			g.wait(token) // if nobody takes our place
			g.mu.Unlock()
			return g.Again
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	g.lost(token, "its connector ended")
	return err
}

// enter finds a connector's session, or makes it one.
func (g *Guests) enter(token string) (string, *session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending {
		return "", nil, connect.NewError(connect.CodeUnavailable, errors.New("skepd is ending: try again"))
	}
	if token == "" {
		token = cells.NewID()
		s := &session{events: make(chan *skepv1.GuestEvent, maxEvents), open: true, disarm: func() {}}
		g.sessions[token] = s
		return token, s, nil
	}
	s := g.sessions[token]
	if s == nil && !cells.ValidID(token) || s != nil && s.open {
		return "", nil, connect.NewError(connect.CodeNotFound, errors.New("no such session"))
	}
	if s == nil { // it had no guest when skepd was replaced
		s = &session{events: make(chan *skepv1.GuestEvent, maxEvents), disarm: func() {}}
		g.sessions[token] = s
	}
	s.disarm()
	s.open = true
	return token, s, nil
}

// lost ends what a connector left.
func (g *Guests) lost(token, why string) {
	g.mu.Lock()
	if s := g.sessions[token]; s != nil {
		s.disarm()
	}
	delete(g.sessions, token)
	left := map[string]*guest{}
	for id, l := range g.live {
		if l.session == token {
			left[id] = l
		}
	}
	g.mu.Unlock()
	for id, l := range left {
		g.settle(id, l, cells.Cause{Word: "boundary-died", Detail: why}, ending.Failed)
	}
}

// settle records an end, unless another does; it returns when that is done.
func (g *Guests) settle(id string, l *guest, cause cells.Cause, code int) {
	g.mu.Lock()
	first := !l.ending
	l.ending = true
	g.mu.Unlock()
	if !first {
		<-l.ended
		return
	}
	g.book.Settle(id, l.begin, code, cause, cells.Stopped)
	g.book.Keep(id)
	g.mu.Lock()
	delete(g.live, id)
	g.mu.Unlock()
	close(l.ended)
}

// of is a guest of a session.
func (g *Guests) of(token, id string) (*guest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.live[id]
	if l == nil || l.session != token || l.ending {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such agent of this connector"))
	}
	return l, nil
}

// Record makes records durable.
func (g *Guests) Record(ctx context.Context, q *connect.Request[skepv1.GuestRecordRequest]) (*connect.Response[skepv1.GuestRecordResponse], error) {
	l, err := g.of(q.Msg.Session, q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	if len(q.Msg.Records) > boxlink.MaxRecords {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d records are more than %d", len(q.Msg.Records), boxlink.MaxRecords))
	}
	entries := make([]ledger.Entry, len(q.Msg.Records))
	for i, r := range q.Msg.Records {
		body, err := boxlink.Body(r)
		if err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
		entries[i] = ledger.Entry{Cell: q.Msg.Cell, Agent: l.agent, Body: body}
	}
	if err := g.Ledger().AppendAll(ctx, entries); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	n := boxlink.Count(q.Msg.Records)
	g.Cells.Count(q.Msg.Cell, n.Allowed, n.Refused)
	return connect.NewResponse(&skepv1.GuestRecordResponse{}), nil
}

// Note records what a connector did.
func (g *Guests) Note(ctx context.Context, q *connect.Request[skepv1.GuestNoteRequest]) (*connect.Response[skepv1.GuestNoteResponse], error) {
	l, err := g.of(q.Msg.Session, q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	if err := short(q.Msg.Text); err != nil {
		return nil, err
	}
	body := &kind.Note{By: "skep-connector", Text: kind.Bytes(q.Msg.Text)}
	if err := g.Ledger().AppendAll(ctx, []ledger.Entry{{Cell: q.Msg.Cell, Agent: l.agent, Body: body}}); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(&skepv1.GuestNoteResponse{}), nil
}

// Finish records and seals the end of a guest. One that has ended is no error.
func (g *Guests) Finish(_ context.Context, q *connect.Request[skepv1.GuestEndRequest]) (*connect.Response[skepv1.GuestEndResponse], error) {
	if err := short(q.Msg.Why); err != nil {
		return nil, err
	}
	if l, err := g.of(q.Msg.Session, q.Msg.Cell); err == nil {
		cause, code := cells.Cause{Word: "revoked", Detail: q.Msg.Why}, 0
		if q.Msg.Died {
			cause.Word, code = "boundary-died", ending.Failed
		}
		g.settle(q.Msg.Cell, l, cause, code)
	}
	return connect.NewResponse(&skepv1.GuestEndResponse{}), nil
}

func short(texts ...string) error {
	for _, s := range texts {
		if len(s) > maxText {
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("a text of %d bytes; at most %d", len(s), maxText))
		}
	}
	return nil
}

// Stop has a guest detached by its connector, and is back when its end is recorded. False
// says that it is no guest that lives.
func (g *Guests) Stop(ctx context.Context, id string) (bool, error) {
	g.mu.Lock()
	l := g.live[id]
	var s *session
	if l != nil {
		s = g.sessions[l.session]
	}
	g.mu.Unlock()
	if l == nil {
		return false, nil
	}
	if s != nil {
		tell(s, &skepv1.GuestEvent{Stop: id})
	}
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	select {
	case <-l.ended:
		return true, nil
	case <-ctx.Done():
		return true, fmt.Errorf("its connector has not detached it: %w", ctx.Err())
	}
}

// tell does not wait for a connector that does not read.
func tell(s *session, e *skepv1.GuestEvent) {
	select {
	case s.events <- e:
	default:
	}
}

// EndAll has every connector detach its agents because skepd ends, and records the end of
// those that are not in time.
func (g *Guests) EndAll(why cells.Cause) {
	g.mu.Lock()
	g.ending = true
	left := map[string]*guest{}
	for id, l := range g.live {
		left[id] = l
	}
	for _, s := range g.sessions {
		tell(s, &skepv1.GuestEvent{End: true})
	}
	g.mu.Unlock()
	late := make(chan struct{})
	stop := g.Clock.AfterFunc(endWithin, func() { close(late) })
	defer stop()
	for id, l := range left {
		select {
		case <-l.ended:
		case <-late:
			g.settle(id, l, why, ending.Failed)
		}
	}
}
