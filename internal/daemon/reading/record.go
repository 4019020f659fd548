// Package reading answers what was recorded of cells, why, and what they wrote.
//
// Its law: it changes nothing.
package reading

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/entry"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/ledger/story"
	"skep.dev/skep/internal/policy"
)

// Clock paces a follower; tests turn it by hand.
type Clock interface {
	AfterFunc(d time.Duration, f func()) (stop func())
}

// Reading serves the calls of the API that only look.
type Reading struct {
	Ledger *ledger.Ledger
	Dir    string // of the ledger
	Cells  *cells.Store
	Lives  func(cell string) bool
	// Ceiling is the operator's, read anew: it belongs to what a cell may reach (B87).
	Ceiling func() (policy.Ceiling, error)
	// Own are the host's addresses as the boxes have them (B105).
	Own   func() []netip.Addr
	Clock Clock
	// Leaving is closed when another skepd goes on: who follows ends with Again.
	Leaving func() <-chan struct{}
	Again   error
}

func (g *Reading) find(ref string) (cells.Record, error) {
	r, err := g.Cells.Find(ref)
	return r, cells.APIError(err)
}

func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }

// LogFile is the name of a cell's output log in its directory.
const LogFile = "log"

// LedgerRead streams entries as they stand in the ledger.
func (g *Reading) LedgerRead(ctx context.Context, q *connect.Request[skepv1.LedgerReadRequest], out *connect.ServerStream[skepv1.LedgerEntry]) error {
	f, err := g.filter(q.Msg)
	if err != nil {
		return err
	}
	var buf []byte
	leaving := g.Leaving()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-leaving:
			cancel()
		case <-ctx.Done():
		}
	}()
	for record, err := range g.entries(ctx, f, q.Msg.Follow) {
		if isClosed(leaving) {
			return g.Again
		}
		if record.Position < q.Msg.From {
			continue
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return connect.NewError(connect.CodeDataLoss, err)
		}
		if buf, err = entry.Append(buf[:0], &record.Entry); err != nil {
			return connect.NewError(connect.CodeDataLoss, err)
		}
		if err := out.Send(&skepv1.LedgerEntry{Json: buf, Position: record.Position}); err != nil {
			return err
		}
	}
	if q.Msg.Follow && isClosed(leaving) {
		return g.Again
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (g *Reading) entries(ctx context.Context, f ledger.Filter, follow bool) iter.Seq2[ledger.Record, error] {
	if follow {
		return g.Ledger.Follow(ctx, f)
	}
	return ledger.Read(g.Dir, f)
}

// filter reads what is asked for, strictly.
func (g *Reading) filter(q *skepv1.LedgerReadRequest) (f ledger.Filter, err error) {
	if q.Cell != "" && q.Cell != ledger.HostCell {
		r, err := g.find(q.Cell)
		if err != nil {
			return f, err
		}
		q.Cell = r.ID
	}
	f.Cell = q.Cell
	for _, k := range q.Kinds {
		if !kind.Known(kind.Kind(k)) {
			return f, invalid(fmt.Errorf("unknown kind %q: one of %v", k, kind.All()))
		}
		f.Kinds = append(f.Kinds, kind.Kind(k))
	}
	switch f.Decision = kind.Decision(q.Decision); f.Decision {
	case "", kind.Allow, kind.Deny, kind.Ask:
	default:
		return f, invalid(fmt.Errorf("unknown decision %q: allow, deny or ask", q.Decision))
	}
	for _, t := range []struct {
		text string
		into *time.Time
	}{{q.Since, &f.Since}, {q.Until, &f.Until}} {
		if t.text == "" {
			continue
		}
		if *t.into, err = time.Parse(time.RFC3339Nano, t.text); err != nil {
			return f, invalid(fmt.Errorf("time %q is not of the form 2006-01-02T15:04:05Z", t.text))
		}
	}
	return f, nil
}

// Explain says what an event was, why it was decided so, and what would allow it.
func (g *Reading) Explain(ctx context.Context, q *connect.Request[skepv1.ExplainRequest]) (*connect.Response[skepv1.ExplainResponse], error) {
	r, err := g.find(q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	if q.Msg.Would != "" {
		return g.would(r, q.Msg.Would)
	}
	match, err := matcher(q.Msg)
	if err != nil {
		return nil, err
	}
	var found *ledger.Record
	for record, err := range g.entries(ctx, ledger.Filter{Cell: r.ID}, false) {
		if err != nil {
			return nil, connect.NewError(connect.CodeDataLoss, err)
		}
		if match(&record.Entry) {
			record.Body = slices.Clone(record.Body) // valid only until the next one
			found = &record
			if q.Msg.Event != "" {
				break
			}
		}
	}
	if found == nil {
		text := "no such event: `skep ledger show` lists them with their numbers"
		if q.Msg.Event == "" {
			text = "no crossing to that host was tried: `skep why CELL --host NAME[:PORT]` says what would happen"
		}
		return nil, connect.NewError(connect.CodeNotFound, errors.New(text))
	}
	body, err := found.Decode()
	if err != nil {
		return nil, connect.NewError(connect.CodeDataLoss, err)
	}
	out := &skepv1.ExplainResponse{What: story.Sentence(body)}
	explainBody(body, r.ProfileName, out)
	if out.Json, err = entry.Append(nil, &found.Entry); err != nil {
		return nil, connect.NewError(connect.CodeDataLoss, err)
	}
	return connect.NewResponse(out), nil
}

// matcher finds an entry by its number, or the last crossing to a host.
func matcher(q *skepv1.ExplainRequest) (func(*entry.Entry) bool, error) {
	if q.Event != "" {
		seq, err := strconv.ParseUint(q.Event, 10, 64)
		if err != nil {
			return nil, invalid(fmt.Errorf("event %q is not the number of an entry", q.Event))
		}
		return func(e *entry.Entry) bool { return e.Seq == seq }, nil
	}
	if q.Host == "" {
		return nil, invalid(errors.New("name an event by its number, or a host"))
	}
	host := strings.ToLower(strings.TrimSuffix(q.Host, "."))
	return func(e *entry.Entry) bool {
		body, err := e.Decode()
		if err != nil {
			return false
		}
		f, ok := flowOf(body)
		return ok && string(f.Destination) == host
	}, nil
}

func flowOf(b kind.Body) (kind.Flow, bool) {
	switch b := b.(type) {
	case *kind.FlowIntent:
		return kind.Flow(*b), true
	case *kind.FlowOutcome:
		return kind.Flow(*b), true
	case *kind.FlowDenied:
		return kind.Flow(*b), true
	case *kind.FlowHeld:
		return kind.Flow(*b), true
	}
	return kind.Flow{}, false
}

func explainBody(b kind.Body, profileName string, out *skepv1.ExplainResponse) {
	out.AllowWith = story.Remedy(b)
	if m, ok := b.(*kind.ModelSettled); ok {
		out.Why = m.Reason
		return
	}
	f, ok := flowOf(b)
	if !ok {
		return
	}
	reason, err := flow.ParseReason(f.Reason)
	switch {
	case f.Reason == "" || err != nil:
		out.Why = "a rule allows it"
	default:
		out.Why = f.Reason + ": " + reason.Sentence()
	}
	if f.Rule != "" {
		out.Rule = f.Rule
		if f.Line > 0 {
			out.Rule = fmt.Sprintf("%s, line %d of %s", f.Rule, f.Line, profileName)
		}
	}
}
