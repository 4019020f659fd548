package model

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
)

const question = "POST /v1/chat/completions HTTP/1.1\r\nHost: mesh.skep.alt\r\nContent-Length: 2\r\n\r\n{}"

// events answers with n pieces, one each pause.
func events(n int, pause time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for range n {
			_, _ = io.WriteString(w, "data: x\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}
}

// A streamed answer goes on as long as events flow, however long ago the agent spoke (B76).
func TestStreamLivesWhileEventsFlow(t *testing.T) {
	const idle, pieces = 200 * time.Millisecond, 30
	l := &lab{answer: events(pieces, idle/4), idle: idle}
	c, wait := l.connect(t)
	began := time.Now()
	a, body := exchange(t, c, bufio.NewReader(c), question)
	if a.StatusCode != 200 || strings.Count(body, "data") != pieces || time.Since(began) < 3*idle {
		t.Errorf("%v, %d events after %s", a.Status, strings.Count(body, "data"), time.Since(began))
	}
	if r := wait(); r.Decision != "allow" {
		t.Errorf("%+v", r)
	}
}

// Without events it ends, and so does a connection on which nobody asks; the record says
// which of the two bounds that was (B150, B190).
func TestIdleHasItsCause(t *testing.T) {
	for what, request := range map[string]string{"no event": question, "no request": ""} {
		l := &lab{idle: 100 * time.Millisecond, answer: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}}
		c, wait := l.connect(t)
		_, _ = io.WriteString(c, request)
		_, _ = io.Copy(io.Discard, c)
		if r := wait(); r.Verdict.Reason != flow.IdleTimeout || r.Decision != "fail" && r.Decision != "block" {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

// The end of the cell is the cause of what it breaks off.
func TestRevokedHasItsCause(t *testing.T) {
	for what, request := range map[string]string{"in an answer": question, "between two": ""} {
		asked := make(chan struct{}, 1)
		ctx, end := context.WithCancel(context.Background())
		defer end()
		l := &lab{cell: ctx, answer: func(w http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			<-r.Context().Done()
		}}
		c, wait := l.connect(t)
		_, _ = io.WriteString(c, request)
		if request != "" {
			<-asked
		}
		end()
		_, _ = io.Copy(io.Discard, c)
		if r := wait(); r.Verdict.Reason != flow.Revoked && r.Kind == boundary.Outcome {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

// grant leases once.
type grant chan int64

func (g grant) Lease(context.Context, int64) (int64, error) {
	select {
	case n := <-g:
		return n, nil
	default:
		return 0, nil
	}
}

// A call carries what the budget has, both ways together, and ends with the reason (R9a).
func TestCallEndsAtItsBudget(t *testing.T) {
	const limit = 50000
	g := make(grant, 1)
	g <- limit
	l := &lab{bytes: boundary.NewBytes(t.Context(), g), answer: events(1<<20, time.Microsecond)}
	c, wait := l.connect(t)
	_, _ = io.WriteString(c, question)
	got, _ := io.Copy(io.Discard, c)
	if r := wait(); r.Verdict.Reason != flow.BudgetExhausted || r.Up != uint64(len(question)) || r.Up+r.Down != uint64(l.bytes.Spent()) || r.Up+r.Down > limit || got == 0 {
		t.Errorf("the agent got %d, %+v", got, r)
	}
}
