package model

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"time"

	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/model/openai"
)

// passage is an answer on its way to the agent.
type passage struct {
	*attempt
	answer openai.Answer
	w      http.ResponseWriter
	flush  *http.ResponseController
	meter  openai.Meter
	digest hash.Hash
	began  bool // the header is out: from here on a fault is told in the stream
	failed bool // the provider put an error in the place of an answer
}

// errAgentGone says that the agent no longer reads.
var errAgentGone = errors.New("the agent hung up")

// pass writes the answer to the agent, each event as it comes, and settles.
// Reading stops while the agent does not read, so flow control holds from end to
// end.
func (a *attempt) pass(ctx context.Context, w http.ResponseWriter, answer openai.Answer) {
	p := &passage{attempt: a, answer: answer, w: w, flush: http.NewResponseController(w), digest: sha256.New()}
	// A hang-up must reach a Next that waits for the provider.
	stop := context.AfterFunc(ctx, func() { _ = answer.Close() })
	err := p.copy()
	stop()
	_ = answer.Close()
	if err != nil && ctx.Err() != nil {
		err = errAgentGone
	}
	e := p.settled(err)
	if err != nil && !errors.Is(err, errAgentGone) {
		e.Status = p.tell(e.Reason)
	}
	a.settle(ctx, e)
}

// copy returns nil when the whole answer went out.
func (p *passage) copy() error {
	if p.request.Stream {
		// The provider accepted the call and may be thinking for long: clients
		// that wait for a header get it.
		if err := p.begin(); err != nil {
			return err
		}
	}
	for {
		data, err := p.answer.Next()
		if errors.Is(err, io.EOF) {
			return p.end()
		}
		if err != nil {
			return err
		}
		seen := p.meter.Observe(data)
		p.digest.Write(data)
		p.failed = p.failed || seen.Failed
		if p.request.Stream {
			if seen.OnlyUsage && !p.request.WantsUsage() {
				continue
			}
			data = openai.AppendEvent(make([]byte, 0, len(data)+16), data)
		} else if err := p.begin(); err != nil {
			return err
		}
		if err := p.write(data); err != nil {
			return err
		}
	}
}

// begin sends the header.
func (p *passage) begin() error {
	p.setHeader(p.w.Header())
	p.w.WriteHeader(http.StatusOK)
	p.began = true
	return p.write(nil)
}

// write sends bytes at once; an agent that takes none for too long is gone.
func (p *passage) write(b []byte) error {
	// Not every writer has deadlines: then only the connection's end frees us.
	_ = p.flush.SetWriteDeadline(time.Now().Add(writeIdle))
	if _, err := p.w.Write(b); err != nil {
		return errAgentGone
	}
	if err := p.flush.Flush(); err != nil {
		return errAgentGone
	}
	return nil
}

// end closes a whole answer. A stream that stops before the model said that it was
// done was cut, however well it was closed.
func (p *passage) end() error {
	if !p.request.Stream || p.failed {
		return nil
	}
	if !p.meter.Ended() {
		return openai.ErrCut
	}
	return p.write(openai.AppendEvent(nil, []byte(openai.Done)))
}

// settled says what the passage charges.
func (p *passage) settled(err error) kind.ModelSettled {
	u, estimated := p.meter.Usage(int64(len(p.body)))
	e := kind.ModelSettled{
		Outcome: Done, Status: http.StatusOK, Estimated: estimated,
		Input: u.Input, Output: u.Output, Cached: u.Cached, Reasoning: u.Reasoning,
		AnswerBytes: uint64(p.meter.Bytes()), AnswerDigest: hex.EncodeToString(p.digest.Sum(nil)),
	}
	switch {
	case err == nil && p.failed:
		e.Outcome, e.Reason = Cut, "provider_error"
	case err == nil:
	case errors.Is(err, errAgentGone):
		e.Outcome, e.Reason = Cancelled, "agent_gone"
	case errors.Is(err, openai.ErrKeyInAnswer):
		e.Outcome, e.Reason = Cut, "key_in_answer"
	default:
		e.Outcome, e.Reason = Cut, "provider_cut"
	}
	if err != nil && !p.request.Stream && p.meter.Bytes() == 0 {
		// A whole answer that did not arrive may have been made all the same.
		e.Outcome, e.Input, e.Output, e.Estimated = Uncertain, 0, 0, false
	}
	return e
}

// tell says a fault to the agent and returns the status that it got: before the
// header as an answer of its own, after it as an event, without the end mark.
func (p *passage) tell(code string) uint16 {
	refusal := &openai.Refusal{Status: http.StatusBadGateway, Code: code,
		Message: "the model's answer broke off and is not complete"}
	if !p.began {
		refusal.Respond(p.w)
		return uint16(refusal.Status)
	}
	_ = p.write(openai.AppendEvent(nil, refusal.Body()))
	return http.StatusOK
}
