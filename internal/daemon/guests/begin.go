package guests

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/ending"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
)

// Begin makes a guest a cell. When it returns, the ledger has generation and policy
// (guest.md, G83).
func (g *Guests) Begin(ctx context.Context, q *connect.Request[skepv1.GuestBeginRequest]) (*connect.Response[skepv1.GuestBeginResponse], error) {
	m := q.Msg
	p, ok := peer.Of(ctx)
	if !ok {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("the caller is unknown"))
	}
	if err := check(m); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if err := g.fresh(m); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	now := g.Clock.Now()
	id, l := cells.NewID(), &guest{session: m.Session, agent: m.Agent, begin: now, ended: make(chan struct{})}
	g.mu.Lock()
	s := g.sessions[m.Session]
	if s == nil || g.ending {
		g.mu.Unlock()
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such session"))
	}
	g.live[id] = l
	g.mu.Unlock()
	if err := g.declare(ctx, id, p, m, now); err != nil {
		g.mu.Lock()
		delete(g.live, id)
		g.mu.Unlock()
		close(l.ended)
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	g.mu.Lock()
	lost := g.sessions[m.Session] != s
	g.mu.Unlock()
	if lost { // meanwhile, and whoever ended its guests may have come before this one was whole
		g.settle(id, l, cells.Cause{Word: "boundary-died", Detail: "its connector ended"}, ending.Failed)
	}
	return connect.NewResponse(&skepv1.GuestBeginResponse{Cell: id}), nil
}

func check(m *skepv1.GuestBeginRequest) error {
	switch {
	case len(m.Rules) > maxRules:
		return fmt.Errorf("%d rules; at most %d", len(m.Rules), maxRules)
	case m.Generation == 0:
		return errors.New("a guest has a generation")
	case !slices.Contains([]string{"verified", "unverified", "none"}, m.Identity) || (m.Agent == "") != (m.Identity == "none"):
		return fmt.Errorf("identity %q of agent %q", m.Identity, m.Agent)
	}
	return short(append([]string{m.Agent, m.ExternalId, m.Listener, m.Policy}, m.Rules...)...)
}

// fresh sees that no earlier life of the agent, as the ledger has them, had its slice.
func (g *Guests) fresh(m *skepv1.GuestBeginRequest) error {
	if m.PoolSlice == nil {
		return nil
	}
	for _, r := range g.Cells.All() {
		if e := r.Guest; e != nil && e.Agent == m.Agent && e.Slice != nil && *e.Slice == *m.PoolSlice {
			return fmt.Errorf("pool slice %d was that of generation %d of %s: its addresses may be remembered; take another", *m.PoolSlice, e.Generation, m.Agent)
		}
	}
	return nil
}

// declare writes the cell's record and its first entries.
func (g *Guests) declare(ctx context.Context, id string, p peer.Peer, m *skepv1.GuestBeginRequest, now time.Time) error {
	name, program := m.Agent, m.Agent
	if cells.CheckName(name) != nil {
		name = ""
	}
	if program == "" {
		program = "unnamed"
	}
	r := cells.Record{
		ID: id, Name: name, State: cells.Building, UID: p.UID, Argv: []string{program}, ProfileName: "bundle", ProfileDigest: m.Policy, Created: now, FilesChanged: -1,
		Guest: &cells.Guest{Session: m.Session, Agent: m.Agent, ExternalID: m.ExternalId, Identity: m.Identity, Listener: m.Listener, Generation: m.Generation, Slice: m.PoolSlice},
	}
	keep, err := g.Cells.Add(r)
	if err != nil {
		return err
	}
	rules := slices.Clone(m.Rules)
	slices.Sort(rules)
	none := sha256.Sum256(nil)
	declared := &kind.CellDeclared{
		Name: name, Program: kind.Bytes(program), ArgsDigest: hex.EncodeToString(none[:]), Profile: "bundle", ProfileDigest: m.Policy, Rights: rules,
		ConfirmedBy: p.String(), ConfirmedHow: "bundle", ExternalID: kind.Bytes(m.ExternalId), Identity: m.Identity, Listener: kind.Bytes(m.Listener), Generation: m.Generation,
	}
	if m.PoolSlice != nil {
		declared.PoolSlice = strconv.FormatUint(uint64(*m.PoolSlice), 10)
	}
	started := &kind.CellStarted{Driver: "tunnel", Walls: []string{}, NotEnforced: []string{}, Ms: ending.Millis(g.Clock.Now().Sub(now))}
	err = g.Ledger().AppendAll(ctx, []ledger.Entry{{Cell: id, Agent: m.Agent, Body: declared}, {Cell: id, Agent: m.Agent, Body: started}})
	err = errors.Join(err, keep())
	if err == nil {
		err = g.Cells.Set(id, func(r *cells.Record) { r.State, r.Started = cells.Running, now })
	}
	if err != nil {
		return errors.Join(err, g.Cells.Remove(id))
	}
	return g.Cells.Keep(id)
}
