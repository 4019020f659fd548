package model

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"skep.dev/skep/internal/budget"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/model/openai"
)

// call is one request of an agent; attempt, one admitted try at one target.
type call struct {
	session *session
	flow    string
	request *openai.Request
	body    []byte
}

type attempt struct {
	*call
	id      string
	route   *Route
	hold    hold
	started time.Time
}

// serve is the whole path of a call: for each target in order, hold, record, send,
// pass the answer on, settle.
func (c *call) serve(ctx context.Context, w http.ResponseWriter, routes []Route) {
	var refusal *openai.Refusal
	for i := range routes {
		var a *attempt
		if a, refusal = c.admit(ctx, &routes[i]); refusal != nil {
			c.session.refuse(ctx, w, refusal)
			return
		}
		answer, err := a.route.Target.Answer(ctx, openai.Call{
			ID: a.id, Cell: c.session.cell.ID, Role: c.request.Model, Request: c.request, MaxOutput: a.hold.maxOutput,
		})
		if err == nil {
			a.pass(ctx, w, answer)
			return
		}
		refusal = a.failed(ctx, err)
		if refusal.Charge != openai.Free || !refusal.Elsewhere || ctx.Err() != nil {
			break
		}
	}
	refusal.Respond(w)
}

// admit holds and records an attempt; without both it is not made.
func (c *call) admit(ctx context.Context, route *Route) (*attempt, *openai.Refusal) {
	if refusal := c.priceMissing(route); refusal != nil {
		return nil, refusal
	}
	h, refusal := c.reserve(route)
	if refusal != nil {
		return nil, refusal
	}
	g := c.session.gateway
	a := &attempt{call: c, route: route, hold: h, started: time.Now(), id: fmt.Sprintf("%s-%d", g.run, g.calls.Add(1))}
	digest := sha256.Sum256(c.body)
	e := kind.ModelAdmitted{
		Call: a.id, Role: kind.Bytes(c.request.Model), Dialect: "chat", Target: route.Name, Model: route.Model,
		Stream: c.request.Stream, RequestDigest: hex.EncodeToString(digest[:]), RequestBytes: uint64(len(c.body)),
		HeldInput: h.amount[budget.Tokens] - h.maxOutput, HeldOutput: h.maxOutput, HeldMicroUSD: h.amount[budget.MicroUSD],
	}
	if route.Price != nil {
		e.Prices = route.Price.Version
	}
	cell := c.session.cell.ID
	// An agent that hangs up here must not leave an entry of which nobody knows
	// whether it is written: the record is finished, and the call then fails unsent.
	record, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	if err := g.recorder.Admitted(record, cell, e); err != nil {
		// Nothing was sent, so the hold may go, whatever reached the ledger.
		g.log.Error("record a model call", "cell", cell, "call", a.id, "error", err)
		if _, err := g.accounts.Settle(h.id, budget.Amount{}); err != nil {
			g.log.Error("release a model call", "cell", cell, "call", a.id, "error", err)
		}
		return nil, &openai.Refusal{Status: http.StatusServiceUnavailable, Code: codeUnrecorded,
			Message: "the record cannot be written, so the call is not made; see `skep doctor`"}
	}
	return a, nil
}

// failed settles an attempt that got no answer, and says what the agent is told.
func (a *attempt) failed(ctx context.Context, err error) *openai.Refusal {
	refusal, ok := errors.AsType[*openai.Refusal](err)
	if !ok {
		a.session.gateway.log.Error("ask a target", "target", a.route.Name, "call", a.id, "error", err)
		refusal = &openai.Refusal{Status: http.StatusBadGateway, Code: "target_failed", Message: "the model's target failed"}
	}
	e := kind.ModelSettled{Reason: refusal.Code, Status: uint16(refusal.Status)}
	switch refusal.Charge {
	case openai.Free:
		e.Outcome = Refused
	case openai.InputOnly:
		e.Outcome, e.Input, e.Estimated = Failed, openai.Estimate(int64(len(a.body))), true
	default:
		e.Outcome = Uncertain
	}
	a.settle(ctx, e)
	return refusal
}

// settle records the end of the attempt and then gives back what was not used.
// The agent's going away does not stop it; a record that cannot be written
// keeps the hold.
func (a *attempt) settle(ctx context.Context, e kind.ModelSettled) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
	defer cancel()
	g := a.session.gateway
	cell := a.session.cell.ID
	e.Call, e.Ms = a.id, uint64(max(0, time.Since(a.started).Milliseconds()))
	usage := openai.Usage{Input: e.Input, Output: e.Output, Cached: e.Cached, Reasoning: e.Reasoning}
	money, err := a.route.Price.cost(usage)
	if err != nil {
		e.Outcome, e.Reason = Uncertain, "cost-overflow"
	}
	e.MicroUSD = money
	log := g.log.With("cell", cell, "flow", a.flow, "call", a.id, "target", a.route.Name)
	if err := g.recorder.Settled(ctx, cell, e); err != nil {
		log.Error("record the end of a model call; its hold stays", "error", err)
		return
	}
	log.Info("model call", "outcome", e.Outcome, "reason", e.Reason, "status", e.Status,
		"input", e.Input, "output", e.Output, "estimated", e.Estimated, "ms", e.Ms)
	if e.Outcome == Uncertain {
		return
	}
	s, err := g.accounts.Settle(a.hold.id, budget.Of(budget.Tokens, usage.Total()).With(budget.MicroUSD, money))
	if err != nil {
		log.Error("settle a model call; its hold stays", "error", err)
	} else if !s.Overrun.IsZero() {
		log.Warn("a model call used more than it could", "overrun", s.Overrun.String())
	}
}

// setHeader writes what the agent may know beside the answer.
func (a *attempt) setHeader(h http.Header) {
	h.Set("Content-Type", "application/json")
	if a.request.Stream {
		h.Set("Content-Type", "text/event-stream")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Skep-Call", a.id)
	asked := a.request.OutputLimit()
	if a.hold.lowered || asked == nil {
		h.Set("X-Skep-Max-Output", strconv.FormatInt(a.hold.maxOutput, 10))
	}
}
