package model

import (
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/budget"
	"skep.dev/skep/internal/model/openai"
)

// Attacks the limit: many calls at one time, each of which uses all that it may.
func TestParallelCallsNeverPassTheLimit(t *testing.T) {
	const limit = 20_000
	var mu sync.Mutex
	used := int64(0)
	l := newLab(t, limit, nil)
	greedy := l.remote("greedy", func(w http.ResponseWriter, r *http.Request) {
		sent := r.Context().Value(bodyKey{}).([]byte)
		var call openai.Request
		if err := json.Unmarshal(sent, &call); err != nil || call.MaxTokens == nil {
			t.Errorf("no limit was sent: %v %s", err, sent)
			return
		}
		mu.Lock()
		used += 100 + *call.MaxTokens
		mu.Unlock()
		fmt.Fprintf(w, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":%d}}`, *call.MaxTokens)
	})
	greedy.MaxOutput = 700
	l.setRoutes(greedy)
	l.client = l.connect(Cell{ID: cellID, Roles: []string{"coder"}}, true)
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			if got := l.totals(); got.Settled[budget.Tokens]+got.Held[budget.Tokens] > limit {
				t.Errorf("over the limit: %+v", got)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	var work sync.WaitGroup
	var refused sync.Map
	for i := range 40 {
		work.Go(func() {
			resp, err := l.client.Post(chat, "", strings.NewReader(body("")))
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests {
				refused.Store(i, true)
			}
		})
	}
	work.Wait()
	close(stop)
	<-watched
	got := l.totals()
	if got.Settled[budget.Tokens] != used || used > limit || !got.Held.IsZero() {
		t.Errorf("%+v, the provider produced %d", got, used)
	}
	n := 0
	refused.Range(func(any, any) bool { n++; return true })
	if n == 0 {
		t.Error("nothing was refused: the test did not reach the limit")
	}
}

// M05: a request fits the rest, is lowered and says so; or names the knob.
func TestOutputIsLoweredToWhatIsLeft(t *testing.T) {
	l := newLab(t, 2000, func(w http.ResponseWriter, _ *http.Request) { sendEvents(w, delta, finish, usage) })
	code, _, h := l.post(body(`,"stream":true,"max_completion_tokens":64000`))
	sent := l.hits()[0]
	if lowered := h.Get("X-Skep-Max-Output"); code != 200 || lowered == "" || !strings.Contains(sent, `"max_completion_tokens":`+lowered) {
		t.Errorf("%d, header %q, sent %s", code, lowered, sent)
	}
	if e := l.ledger.admitted[0]; e.HeldInput+e.HeldOutput > 2000 || e.HeldOutput >= 64000 {
		t.Errorf("%+v", e)
	}
	l.post(body(`,"stream":true`))
	code, got, _ := l.post(`{"model":"coder","messages":[{"role":"user","content":"` + strings.Repeat("x", 3000) + `"}]}`)
	if code != 429 || !strings.Contains(got, "insufficient_quota") || !strings.Contains(got, "model.tokens") {
		t.Errorf("%d %s", code, got)
	}
}

// Usage of every shape; cached and reasoning tokens are counted once (M04).
func TestUsageIsSettledAsTheProviderCounted(t *testing.T) {
	l := newLab(t, 1_000_000, func(w http.ResponseWriter, _ *http.Request) {
		sendEvents(w, strings.Replace(delta, "]}", `],"usage":{"prompt_tokens":100,"completion_tokens":1}}`, 1), delta, finish, usage)
	})
	route := (*l.gateway.routes.Load())["coder"][0]
	route.Price = &Price{Version: "v1", Input: 10_000_000, Cached: 1_000_000, Output: 20_000_000, Reasoning: 20_000_000}
	l.setRoutes(route)
	_, got, _ := l.post(body(`,"stream":true`))
	e := <-l.ledger.ended
	if e.Input != 100 || e.Output != 40 || e.Cached != 60 || e.Reasoning != 30 || e.Estimated || e.MicroUSD != 400+60+800 {
		t.Errorf("%+v", e)
	}
	if strings.Contains(got, `"choices":[],"usage"`) {
		t.Error("a usage chunk came that was not asked for")
	}
	if !strings.Contains(l.hits()[0], `"include_usage":true`) {
		t.Error("usage was not asked of the provider")
	}
	if _, got, _ = l.post(body(`,"stream":true,"stream_options":{"include_usage":true}`)); !strings.Contains(got, `"choices":[],"usage"`) {
		t.Error("the usage chunk that was asked for is missing")
	}
}

// M02: an answer without usage costs an estimate, is marked, and never nothing.
func TestMissingOrAbsurdUsageIsEstimatedAndMarked(t *testing.T) {
	for _, last := range []string{
		finish,
		`{"choices":[],"usage":null}`,
		`{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`,
		`{"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":3}}`,
		`{"choices":[],"usage":{"prompt_tokens":9223372036854775807,"completion_tokens":3}}`,
		`{"choices":[],"usage":{"prompt_tokens":"many"}}`,
	} {
		l := newLab(t, 1_000_000, func(w http.ResponseWriter, _ *http.Request) { sendEvents(w, delta, finish, last) })
		l.post(body(`,"stream":true`))
		e := <-l.ledger.ended
		if !e.Estimated || e.Input < 10 || e.Output < 4 || e.Outcome != Done {
			t.Errorf("%s: %+v", last, e)
		}
	}
}

func TestFallbackOnlyWhereTheFirstCannotHaveCharged(t *testing.T) {
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for name, c := range map[string]struct {
		first    http.HandlerFunc // nil: nobody listens
		falls    bool
		outcome  string
		heldLeft bool
	}{
		"nobody listens": {nil, true, Refused, false},
		"rate limit":     {answer(429), true, Refused, false},
		"bad request":    {answer(400), false, Refused, false},
		"key refused":    {answer(401), false, Refused, false},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, false, Refused, false},
		"server error": {answer(500), false, Failed, false},
		"overloaded":   {answer(503), false, Failed, false},
		"lost":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, Uncertain, true},
		"no stream":    {answer(200), false, Uncertain, true},
	} {
		l := newLab(t, 1_000_000, nil)
		first := l.route("first", openai.RemoteConfig{BaseURL: "http://127.0.0.1:1/v1"})
		hits := func() []string { return nil }
		if c.first != nil {
			first = l.remote("first", c.first)
			hits = l.hits
		}
		second := l.remote("second", func(w http.ResponseWriter, _ *http.Request) { sendEvents(w, delta, finish, usage) })
		l.setRoutes(first, second)
		code, got, _ := l.post(body(`,"stream":true`))
		if fell := code == 200 && strings.Contains(got, reply); fell != c.falls {
			t.Errorf("%s: %d %s", name, code, got)
		}
		if c.first != nil && len(hits()) != 1 {
			t.Errorf("%s: %d attempts at the first target", name, len(hits()))
		}
		if !c.falls && len(l.hits()) != 0 {
			t.Errorf("%s: the second target was asked", name)
		}
		if e := <-l.ledger.ended; e.Outcome != c.outcome {
			t.Errorf("%s: %+v", name, e)
		}
		if c.falls {
			<-l.ledger.ended
		}
		if held := !l.totals().Held.IsZero(); held != c.heldLeft {
			t.Errorf("%s: held %v", name, l.totals().Held)
		}
	}
}

func TestMoneyLimitNeedsAPriceAndHolds(t *testing.T) {
	l := newLab(t, 0, func(w http.ResponseWriter, _ *http.Request) { sendEvents(w, delta, finish, usage) })
	limit := budget.Of(budget.Tokens, budget.Unlimited).With(budget.MicroUSD, 30_000)
	if err := l.budget.Open("money", "", limit); err != nil {
		t.Fatal(err)
	}
	l.client = l.connect(Cell{ID: "money", Roles: []string{"coder"}}, false)
	if code, got, _ := l.post(body("")); code != 503 || !strings.Contains(got, "no_price") || len(l.hits()) != 0 {
		t.Errorf("%d %s", code, got)
	}
	route := (*l.gateway.routes.Load())["coder"][0]
	route.Price = &Price{Version: "v1", Input: 10_000_000, Cached: 10_000_000, Output: 50_000_000, Reasoning: 50_000_000}
	l.setRoutes(route)
	if code, got, h := l.post(body(`,"stream":true`)); code != 200 || h.Get("X-Skep-Max-Output") == "" {
		t.Errorf("%d %s %v", code, got, h)
	}
	if e := l.ledger.admitted[0]; e.HeldMicroUSD > 30_000 || e.HeldOutput < 300 || e.Prices != "v1" {
		t.Errorf("%+v", e)
	}
	l.post(body(`,"stream":true`))
	for range 20 {
		if code, got, _ := l.post(body(`,"stream":true`)); code == 429 {
			if !strings.Contains(got, "model.usd") {
				t.Error(got)
			}
			return
		}
	}
	t.Error("money never ended")
}

// Nothing is gathered: the provider sends an event only once the agent has the one
// before, so that a buffer anywhere on the way would stop both.
func TestEventsPassAtOnce(t *testing.T) {
	const events = 200
	got := make(chan struct{}, 1)
	l := newLab(t, 1_000_000, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range events {
			fmt.Fprintf(w, "data: {\"at\":%d,\"choices\":[]}\n\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-got:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprintf(w, "data: %s\n\n", finish)
	})
	resp, err := l.client.Post(chat, "", strings.NewReader(body(`,"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	held := time.AfterFunc(30*time.Second, func() { _ = resp.Body.Close() })
	defer held.Stop()
	in := openai.NewEvents(resp.Body)
	for i := range events {
		data, err := in.Next()
		if err != nil {
			t.Fatalf("event %d is held back: %v", i, err)
		}
		if want := fmt.Sprintf(`"at":%d,`, i); !strings.Contains(string(data), want) {
			t.Fatalf("event %d is %s", i, data)
		}
		got <- struct{}{}
	}
}

// A call that was never admitted is in the record with its reason: of quota, price and role.
func TestRefusalBeforeAdmissionIsRecorded(t *testing.T) {
	unpriced := scripted(t, "- {reply: {text: x}}")
	unpriced.Price = nil
	for reason, set := range map[string]func(*lab){
		"insufficient_quota": func(*lab) {},
		"no_price": func(l *lab) {
			if err := l.budget.Open("poor", "", budget.Of(budget.Tokens, 1_000_000).With(budget.MicroUSD, 5)); err != nil {
				t.Fatal(err)
			}
			l.setRoutes(unpriced)
			l.client = l.connect(Cell{ID: "poor", Roles: []string{"coder"}}, false)
		},
		"model_not_found": func(l *lab) { l.client = l.connect(Cell{ID: cellID}, false) },
	} {
		l := newLab(t, 10, nil)
		set(l)
		if code, got, _ := l.post(body("")); code < 400 || !strings.Contains(got, reason) {
			t.Errorf("%s: %d %s", reason, code, got)
		}
		e := <-l.ledger.ended
		if e.Outcome != Refused || e.Reason != reason || e.Call == "" || e.Status < 400 || len(l.ledger.admitted) != 0 {
			t.Errorf("%s: recorded %+v", reason, e)
		}
	}
}
