package model

import (
	"bufio"
	"context"
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

func TestScriptedAnswerOverBothProtocols(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		l := newLab(t, 100_000, nil)
		l.client = l.connect(Cell{ID: cellID, Roles: []string{"coder"}}, h2)
		code, got, _ := l.post(body(""))
		if code != 200 || !strings.Contains(got, reply) {
			t.Errorf("h2 %t: %d %s", h2, code, got)
		}
		code, got, _ = l.post(body(`,"stream":true`))
		if code != 200 || !strings.HasSuffix(got, "data: [DONE]\n\n") || strings.Contains(got, `"usage"`) {
			t.Errorf("h2 %t: %d %s", h2, code, got)
		}
		if got := l.totals(); got.Settled[budget.Tokens] != 24 || !got.Held.IsZero() {
			t.Errorf("h2 %t: %+v", h2, got)
		}
		resp, err := l.client.Head("http://mesh.skep.alt/v1/models")
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("HEAD models: %v %v", resp, err)
		}
		resp.Body.Close()
	}
}

func TestOtherPathsReachNothing(t *testing.T) {
	l := newLab(t, 100_000, func(w http.ResponseWriter, _ *http.Request) { t.Error("the provider was reached") })
	for _, path := range []string{
		"/v1/models/", "/v1//models", "/v1/files", "/", "/v1/chat/completions/", "/v1/chat/../chat/completions",
		"/v1/chat%2fcompletions", "/V1/chat/completions", "/v1/chat/completions/../../../x", "/v1/chat/completions%23",
	} {
		req, _ := http.NewRequest(http.MethodPost, "http://mesh.skep.alt", strings.NewReader(body("")))
		req.URL.Opaque = "//mesh.skep.alt" + path
		req.URL.Opaque, req.URL.Path = "", ""
		req.URL.Opaque = path
		resp, err := l.client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// Attacks the upstream request: nothing that an agent sends may move its host, its
// path, its query, its headers or its model (MG3, M07).
func TestAgentCannotChangeWhereTheCallGoes(t *testing.T) {
	l := newLab(t, 1_000_000, func(w http.ResponseWriter, _ *http.Request) { sendEvents(w, delta, finish, usage) })
	req, _ := http.NewRequest(http.MethodPost, chat+"?api-version=evil#x", strings.NewReader(body(`,"stream":true,"user":"a\r\nX-Evil: 1"`)))
	for _, h := range []string{"Authorization", "X-Evil", "OpenAI-Organization", "Cookie", "X-Forwarded-Host", "Openai-Beta", "Idempotency-Key"} {
		req.Header.Set(h, "evil")
	}
	req.Host = "evil.example"
	resp, err := l.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	for _, model := range []string{"coder#", "coder@evil", "coder/../x", "//evil/coder", `coder\r\nX: 1`, "gpt-x", "CODER", "coder "} {
		code, got, _ := l.post(strings.Replace(body(""), "coder", model, 1))
		if code != http.StatusNotFound || !strings.Contains(got, "model_not_found") {
			t.Errorf("%s: %d %s", model, code, got)
		}
	}
	hits := l.hits()
	if len(hits) != 1 {
		t.Fatalf("%d calls reached the provider", len(hits))
	}
	head, sent, _ := strings.Cut(hits[0], "]\n")
	if !strings.HasPrefix(head, "POST /v1/chat/completions\n") || strings.Contains(strings.ToLower(head), "evil") || !strings.Contains(head, "Bearer "+key) {
		t.Errorf("head: %s", head)
	}
	if !strings.Contains(sent, `"model":"gpt-x"`) || strings.Contains(hits[0], "coder") {
		t.Errorf("body: %s", sent)
	}
}

func TestUnknownFieldIsNeitherSentNorRecorded(t *testing.T) {
	l := newLab(t, 100_000, func(http.ResponseWriter, *http.Request) { t.Error("the provider was reached") })
	code, got, _ := l.post(body(`,"web_search_options":{}`))
	if code != 400 || !strings.Contains(got, "web_search_options") {
		t.Errorf("%d %s", code, got)
	}
	if len(l.ledger.admitted) != 0 || !l.totals().Held.IsZero() {
		t.Error("a refused call left a trace in budget, or was admitted")
	}
	if records := fmt.Sprintf("%+v", l.ledger.settled); strings.Contains(records, "web_search") || !strings.Contains(records, "invalid_request") {
		t.Errorf("recorded %s", records)
	}
}

func TestClaimsAreRefusedNeverDropped(t *testing.T) {
	l := newLab(t, 1_000_000, nil)
	const agent = "coder-7.prod.example"
	l.client = l.connect(Cell{ID: cellID, Agent: agent, Roles: []string{"coder"}}, false)
	for _, c := range []struct {
		agents, flows []string
		status        int
	}{
		{[]string{agent}, nil, 200},
		{[]string{agent}, []string{"f-1"}, 200},
		{nil, nil, 400},
		{[]string{""}, nil, 400},
		{[]string{"other.example"}, nil, 400},
		{[]string{agent, agent}, nil, 400},
		{[]string{"Coder-7.prod.example"}, nil, 400},
		{[]string{agent + "."}, nil, 400},
		{[]string{agent + " x"}, nil, 400},
		{[]string{strings.Repeat("a", 64)}, nil, 400},
		{[]string{agent}, []string{"a b"}, 400},
		{[]string{agent}, []string{"a", "b"}, 400},
		{[]string{agent}, []string{""}, 400},
	} {
		req, _ := http.NewRequest(http.MethodPost, chat, strings.NewReader(body("")))
		req.Header["X-Skep-Agent"], req.Header["X-Skep-Flow"] = c.agents, c.flows
		resp, err := l.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%q %q: %d, want %d", c.agents, c.flows, resp.StatusCode, c.status)
		}
	}
}

func TestUnrecordedCallIsNotSent(t *testing.T) {
	l := newLab(t, 100_000, func(http.ResponseWriter, *http.Request) { t.Error("the provider was reached") })
	l.ledger.failAdmitted = true
	if code, got, _ := l.post(body("")); code != 503 || !strings.Contains(got, "record_unavailable") {
		t.Errorf("%d %s", code, got)
	}
	if !l.totals().Held.IsZero() {
		t.Error("a call that was not made keeps a hold")
	}
}

func TestUnrecordedEndKeepsItsHold(t *testing.T) {
	l := newLab(t, 100_000, nil)
	l.ledger.failSettle = true
	if code, _, _ := l.post(body("")); code != 200 {
		t.Errorf("%d", code)
	}
	<-l.ledger.ended
	if got := l.totals(); got.Held[budget.Tokens] == 0 || got.Settled[budget.Tokens] != 0 {
		t.Errorf("%+v", got)
	}
}

// A whole session at the lowest log level: good, refused, failed, cut calls (MG9).
func TestCanariesStayOutOfLogsAndRecords(t *testing.T) {
	n := 0
	l := newLab(t, 10_000_000, func(w http.ResponseWriter, r *http.Request) {
		n++
		switch n {
		case 1:
			sendEvents(w, delta, finish, usage)
		case 2:
			w.WriteHeader(401)
			fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s"}}`, key)
		case 3:
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"error":{"message":"bad key %s"}}`, key)
		case 4:
			panic(http.ErrAbortHandler)
		case 5:
			sendEvents(w, delta, `{"choices":[{"delta":{"content":"`+r.Header.Get("Authorization")+`"}}]}`, finish)
		default:
			w.WriteHeader(500)
			fmt.Fprint(w, reply, key)
		}
	})
	var seen strings.Builder
	for range 6 {
		_, got, _ := l.post(body(`,"stream":true`))
		seen.WriteString(got)
	}
	l.post(body(`,"` + prompt + `":1`))
	l.post(`{"` + prompt)
	if strings.Contains(seen.String(), key) {
		t.Errorf("the key reached the agent: %s", seen.String())
	}
	records := fmt.Sprintf("%+v %+v", l.ledger.admitted, l.ledger.settled)
	for _, canary := range []string{key, prompt, reply} {
		if strings.Contains(l.logs.String(), canary) {
			t.Errorf("%q is in the logs:\n%s", canary, l.logs.String())
		}
		if strings.Contains(records, canary) {
			t.Errorf("%q is in the record:\n%s", canary, records)
		}
	}
	if len(l.ledger.admitted) != 6 || len(l.ledger.settled) != 8 { // two were not admitted
		t.Errorf("%d admitted, %d settled", len(l.ledger.admitted), len(l.ledger.settled))
	}
}

func TestHangUpCancelsTheProviderAndIsCharged(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		gone := make(chan struct{})
		l := newLab(t, 100_000, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: %s\n\n", delta)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(gone)
		})
		l.client = l.connect(Cell{ID: cellID, Roles: []string{"coder"}}, h2)
		ctx, hangUp := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, chat, strings.NewReader(body(`,"stream":true`)))
		resp, err := l.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if line, _ := bufio.NewReader(resp.Body).ReadString('\n'); !strings.Contains(line, reply) {
			t.Errorf("got %q", line)
		}
		hangUp()
		within(t, gone, "the provider's call was not cancelled")
		e := <-l.ledger.ended
		if e.Outcome != Cancelled || !e.Estimated || e.Input == 0 || e.Output < int64(len(reply))/3 {
			t.Errorf("h2 %t: %+v", h2, e)
		}
		resp.Body.Close()
	}
}

// An agent that goes away while its call is being recorded: the entry is finished,
// nothing is sent, and the hold comes back.
func TestHangUpWhileRecordingSendsNothing(t *testing.T) {
	l := newLab(t, 100_000, func(http.ResponseWriter, *http.Request) { t.Error("the provider was reached") })
	ctx, hangUp := context.WithCancel(context.Background())
	l.ledger.onAdmitted = hangUp
	req, err := openai.ParseRequest([]byte(body("")))
	if err != nil {
		t.Fatal(err)
	}
	c := &call{session: &session{gateway: l.gateway, cell: Cell{ID: cellID}}, request: req, body: []byte(body(""))}
	c.serve(ctx, newWriter(), (*l.gateway.routes.Load())["coder"])
	if e := <-l.ledger.ended; e.Outcome != Refused || !l.totals().Held.IsZero() {
		t.Errorf("%+v, held %v", e, l.totals().Held)
	}
}

func within(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal(what)
	}
}

// Each event must pass before the next is sent: the provider waits for the
// agent's having it.
func TestEventsPassOneByOne(t *testing.T) {
	next := make(chan struct{})
	l := newLab(t, 100_000, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for range 5 {
			<-next
			fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"gr\xc3")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "\xbc\xc3\x9fe\"}}]}\n\n")
			w.(http.Flusher).Flush()
		}
		<-next
		fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", finish)
	})
	resp, err := l.client.Post(chat, "", strings.NewReader(body(`,"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for range 5 {
		next <- struct{}{}
		line, err := lines.ReadString('\n')
		if err != nil || !strings.Contains(line, "grüße") {
			t.Fatalf("%q, %v", line, err)
		}
		lines.ReadString('\n')
	}
	next <- struct{}{}
	rest, _ := io.ReadAll(lines)
	if !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("%q", rest)
	}
}

// An agent that does not read stops the provider: the gateway buffers nothing
// beyond what sockets do.
func TestSlowReaderStopsTheProvider(t *testing.T) {
	const most = 256 << 20
	blocked := make(chan struct{})
	l := newLab(t, 1_000_000, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event := fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", strings.Repeat("x", 1<<20))
		c := http.NewResponseController(w)
		for sent := 0; sent < most; sent += len(event) {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := io.WriteString(w, event); err != nil {
				close(blocked)
				return
			}
		}
		t.Error("everything was taken from the provider")
		close(blocked)
	})
	resp, err := l.client.Post(chat, "", strings.NewReader(body(`,"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	within(t, blocked, "the provider could send without end")
	resp.Body.Close()
}

func TestUnknownStreamEnds(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		reason  string
	}{
		"no finish": {func(w http.ResponseWriter, _ *http.Request) { sendEvents(w, delta) }, "provider_cut"},
		"reset": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: %s\n\ndata: {", delta)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "provider_cut"},
		"error event": {func(w http.ResponseWriter, _ *http.Request) {
			sendEvents(w, delta, `{"error":{"message":"overloaded"}}`)
		}, "provider_error"},
		"key": {func(w http.ResponseWriter, _ *http.Request) { sendEvents(w, delta, `{"x":"`+key+`"}`) }, "key_in_answer"},
	} {
		l := newLab(t, 100_000, c.handler)
		_, got, _ := l.post(body(`,"stream":true`))
		e := <-l.ledger.ended
		if e.Outcome != Cut || e.Reason != c.reason || e.Output == 0 || !e.Estimated {
			t.Errorf("%s: %+v", name, e)
		}
		if !strings.Contains(got, `"error"`) || strings.Contains(got, "[DONE]") || strings.Contains(got, key) {
			t.Errorf("%s: the agent takes it for whole: %s", name, got)
		}
	}
}

func TestSilentProviderIsLeft(t *testing.T) {
	l := newLab(t, 100_000, nil)
	route := l.remote("slow", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\n", delta)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	cfg := openai.RemoteConfig{BaseURL: baseOf(t, route), Idle: 50 * time.Millisecond}
	l.setRoutes(l.route("slow", cfg))
	_, got, _ := l.post(body(`,"stream":true`))
	if e := <-l.ledger.ended; e.Outcome != Cut || !strings.Contains(got, `"error"`) {
		t.Errorf("%+v %s", e, got)
	}
}

func TestManyCallsAtOnceAreBounded(t *testing.T) {
	var running sync.WaitGroup
	release := make(chan struct{})
	l := newLab(t, budget.Unlimited, func(w http.ResponseWriter, _ *http.Request) {
		running.Done()
		<-release
		sendEvents(w, delta, finish)
	})
	s := &session{gateway: l.gateway, cell: Cell{ID: cellID, Roles: []string{"coder"}}}
	s.running.Store(maxCalls)
	w := newWriter()
	req, _ := http.NewRequest(http.MethodPost, chat, strings.NewReader(body("")))
	req.RequestURI = "/v1/chat/completions"
	s.ServeHTTP(w, req)
	if w.Code != 503 || s.running.Load() != maxCalls {
		t.Errorf("%d, %d running", w.Code, s.running.Load())
	}
	s.running.Store(0)
	s.bodies.Store(maxBodies)
	w = newWriter()
	req.Body = io.NopCloser(strings.NewReader(body("")))
	s.ServeHTTP(w, req)
	if w.Code != 503 || s.bodies.Load() != maxBodies {
		t.Errorf("%d, %d bytes", w.Code, s.bodies.Load())
	}
	close(release)
}
