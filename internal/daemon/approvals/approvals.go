// Package approvals is where skepd puts questions of cells to people, and keeps what they
// said (boundary.md, section 11).
//
// Its laws:
//   - A card is opened by what a box records: it names a destination that policy itself
//     found to need a person.
//   - What was said for good is a line of its own file, derived from the stored card, and
//     holds for one person and one profile. It turns an ask into an allow, and is no rule.
//   - It comes after its entry in the ledger, and the next start makes up for a crash
//     between the two.
package approvals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/approval"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/policy/address"
	"skep.dev/skep/internal/right"
)

// Approvals are the questions of one skepd.
type Approvals struct {
	Machine  *approval.Machine
	Standing *Standing
	Cells    *cells.Store
	Journal  approval.Journal
	Ledger   string // its directory
	Log      *slog.Logger
	// Swap gives a cell the answers that it has now; one that does not live is passed over.
	Swap func(cell string)
	// Lives are the cells that live.
	Lives func() []string
}

// Take opens the cards that some records of a cell ask for, and notes what answers its
// flows have used.
func (a *Approvals) Take(cell string, records []*skepv1.FlowRecord) {
	r, ok := a.Cells.Get(cell)
	if !ok {
		return
	}
	if err := a.take(r, records); err != nil {
		a.Log.Error("nobody is asked: it cannot be recorded", "cell", cell, "err", err)
	}
}

// Withdraw ends what is asked for a cell that has ended.
func (a *Approvals) Withdraw(cell string) {
	if err := a.Machine.End(cell); err != nil {
		a.Log.Warn("an open question of a cell has no end in the ledger", "cell", cell, "err", err)
	}
}

func (a *Approvals) take(r cells.Record, records []*skepv1.FlowRecord) error {
	var failed []error
	for _, f := range records {
		switch {
		case f.Kind == skepv1.FlowRecord_KIND_INTENT:
			a.Machine.Took(r.ID, f.Rule)
		case f.Reason == flow.ApprovalNeeded.Token():
			p, ok := proposal(f)
			if !ok {
				continue
			}
			_, err := a.Machine.Open(approval.Ask{
				Cell: r.ID, Owner: r.UID, Proposal: p, Count: f.Count,
				Visible: approval.Visible{Title: title(p), Findings: findings(p)},
			})
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// proposal is the destination of a record.
func proposal(f *skepv1.FlowRecord) (approval.Proposal, bool) {
	host, port, ok := strings.Cut(f.Destination, "]:")
	if ok {
		host = strings.TrimPrefix(host, "[")
	} else if i := strings.LastIndexByte(f.Destination, ':'); i >= 0 {
		host, port = f.Destination[:i], f.Destination[i+1:]
	}
	ports, err := right.ParsePorts(port)
	if err != nil || len(ports) != 1 || ports[0].First != ports[0].Last || host == "" {
		return approval.Proposal{}, false
	}
	return approval.Proposal{Host: host, Port: ports[0].First, Transport: f.Transport}, true
}

func title(p approval.Proposal) string {
	host := p.Host
	if p.Addr().Is6() {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("connect to %s:%d by %s", host, p.Port, p.Transport)
}

// findings is what a person should think of before saying yes (B145).
func findings(p approval.Proposal) []string {
	var out []string
	if a := p.Addr(); a.IsValid() {
		out = append(out, "an address, which has no name to check")
		for _, at := range append(address.Inside(a), a) {
			if special, ok := address.New().Special(at); ok {
				out = append(out, "a special-purpose address, of "+special.String())
			}
		}
	}
	if right.IsMail(p.Port) {
		out = append(out, "a port that mail is sent by")
	}
	return out
}

// Answers is what a cell's box is to know of what people said.
func (a *Approvals) Answers(r cells.Record) []policy.Answer {
	var out []policy.Answer
	for _, s := range a.Standing.Of(r.UID, r.ProfileName) {
		out = append(out, answer(s.Card, s.Proposal, true))
	}
	for _, c := range a.Machine.Answers(r.ID) {
		if c.Scope == approval.Always && c.State == approval.Approved {
			continue // it is a standing one, or was revoked
		}
		said := answer(c.ID, c.Proposal, c.State == approval.Approved)
		said.Once, said.Used = c.State == approval.Approved && c.Scope == approval.Once, c.Used
		out = append(out, said)
	}
	return out[max(0, len(out)-policy.MaxAnswers):]
}

func answer(card string, p approval.Proposal, allow bool) policy.Answer {
	out := policy.Answer{ID: approval.RulePrefix + card, Port: p.Port, Transport: flow.TCP, Allow: allow, Drafted: p.Drafted}
	if p.Transport == flow.UDP.String() {
		out.Transport = flow.UDP
	}
	if out.Addr = p.Addr(); !out.Addr.IsValid() {
		out.Name = p.Host
	}
	return out
}

// Draft opens the card that an agent asks for by itself (B232). What it says is the box's
// word: it is read as strictly as a profile.
func (a *Approvals) Draft(r cells.Record, q *skepv1.DraftRequest) (string, error) {
	p := approval.Proposal{Host: q.Host, Port: uint16(q.Port), Transport: flow.TCP.String(), Drafted: true}
	if q.Udp {
		p.Transport = flow.UDP.String()
	}
	host, addr, err := name.HostOrAddr(q.Host)
	switch {
	case err != nil || q.Port == 0 || q.Port > math.MaxUint16 || len(q.Why) > maxWhy:
		return "", errors.New("the draft names no destination")
	case addr.IsValid() && addr.String() != q.Host, !addr.IsValid() && host != q.Host, name.UnderAlt(host), name.InPools(addr):
		return "", errors.New("the draft names no destination that could be permitted")
	}
	c, err := a.Machine.Open(approval.Ask{
		Cell: r.ID, Owner: r.UID, Proposal: p, Visible: approval.Visible{Title: title(p), Findings: findings(p), Quote: q.Why},
	})
	if c == nil {
		return "", err
	}
	return c.ID, nil
}

// maxWhy is 280 characters of at most four bytes.
const maxWhy = 4 * 280

// Asked is what a cell is told of its own card.
func (a *Approvals) Asked(cell, card string) string {
	c, err := a.Machine.Get(card)
	switch {
	case err != nil || c.Cell != cell || c.ID != card:
		return ""
	case c.State == approval.Pending:
		return "pending"
	case c.State == approval.Approved:
		return "granted"
	}
	return "denied"
}

// List answers ListApprovals.
func (a *Approvals) List(_ context.Context, q *connect.Request[skepv1.ListApprovalsRequest]) (*connect.Response[skepv1.ListApprovalsResponse], error) {
	cell := ""
	if q.Msg.Cell != "" {
		r, err := a.Cells.Find(q.Msg.Cell)
		if err != nil {
			return nil, cells.APIError(err)
		}
		cell = r.ID
	}
	out := &skepv1.ListApprovalsResponse{}
	for _, c := range a.Machine.List(cell) {
		if q.Msg.All || c.State == approval.Pending {
			out.Cards = append(out.Cards, message(c))
		}
	}
	for _, s := range a.Standing.All() {
		out.Standing = append(out.Standing, s.message())
	}
	return connect.NewResponse(out), nil
}

// Decide answers DecideApproval.
func (a *Approvals) Decide(ctx context.Context, q *connect.Request[skepv1.DecideApprovalRequest]) (*connect.Response[skepv1.Card], error) {
	by, ok := peer.Of(ctx)
	if !ok {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("the caller is unknown"))
	}
	card, err := a.Machine.Get(q.Msg.Id)
	if err == nil && (len(q.Msg.Hash) < minHash || !strings.HasPrefix(card.Hash, strings.ToLower(q.Msg.Hash))) {
		err = approval.ErrHash
	}
	if err == nil {
		card, err = a.Machine.Decide(approval.Decision{ID: card.ID, Hash: card.Hash, Allow: q.Msg.Allow, Scope: approval.Scope(q.Msg.Scope), By: by.UID})
	}
	if err != nil {
		return nil, apiError(err)
	}
	if card.State == approval.Approved && card.Scope == approval.Always {
		if err := a.stand(*card); err != nil {
			return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("it is said and recorded, and could not be kept for good (say it again): %w", err))
		}
	}
	return connect.NewResponse(message(*card)), nil
}

// minHash is how many digits of a hash show that it was read.
const minHash = 12

// stand keeps an answer for good, and tells the cells that it is for.
func (a *Approvals) stand(c approval.Card) error {
	r, ok := a.Cells.Get(c.Cell)
	if !ok {
		return cells.ErrNone
	}
	s := said(r, c)
	if err := a.Standing.Add(s); err != nil {
		return err
	}
	a.tell(s)
	return nil
}

func (a *Approvals) tell(s Said) {
	for _, id := range a.Lives() {
		if r, ok := a.Cells.Get(id); ok && r.UID == s.UID && r.ProfileName == s.Profile {
			a.Swap(id)
		}
	}
}

// Revoke answers RevokeApproval: the answer goes, and with it the flows that stand on it.
func (a *Approvals) Revoke(ctx context.Context, q *connect.Request[skepv1.RevokeApprovalRequest]) (*connect.Response[skepv1.RevokeApprovalResponse], error) {
	by, ok := peer.Of(ctx)
	if !ok {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("the caller is unknown"))
	}
	s, ok := a.Standing.Find(q.Msg.Id)
	if !ok {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such standing approval: `skep approve --standing` lists them"))
	}
	err := a.Journal.Append(s.Cell, &kind.ApprovalDecided{
		Proposal: approval.Egress + " " + s.Card, Hash: s.Hash, Decision: "block", Who: fmt.Sprintf("uid:%d", by.UID), Identity: "uid",
		Scope: string(approval.Always), Reason: Revoked,
	})
	if err == nil {
		err = a.Standing.Remove(s.Card)
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	a.tell(s)
	return connect.NewResponse(&skepv1.RevokeApprovalResponse{Revoked: s.message()}), nil
}

// Revoked is the reason in the entry that takes an answer back.
const Revoked = "revoked"

func apiError(err error) error {
	code := connect.CodeFailedPrecondition
	switch {
	case errors.Is(err, approval.ErrNone):
		return connect.NewError(connect.CodeNotFound, errors.New("no such card: `skep approve` lists those that wait"))
	case errors.Is(err, approval.ErrHash):
		code = connect.CodeInvalidArgument
	}
	return connect.NewError(code, err)
}
