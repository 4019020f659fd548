package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"skep.dev/skep/internal/budget"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/model/openai"
	"skep.dev/skep/internal/model/script"
	"skep.dev/skep/internal/sys"
)

const (
	key    = "sk-canary-key-93b1"
	prompt = "canary prompt 5d20"
	reply  = "canary reply 77ef"
	cellID = "cell1"
)

// lab is a gateway with a real budget, a ledger in memory and one provider.
type lab struct {
	t       *testing.T
	gateway *Gateway
	budget  *budget.Machine
	ledger  *memory
	logs    *lockedBuffer
	client  *http.Client
	hits    func() []string // bodies that the provider got
}

// memory is a Recorder that keeps entries and can be told to fail.
type memory struct {
	mu                       sync.Mutex
	admitted                 []kind.ModelAdmitted
	settled                  []kind.ModelSettled
	failAdmitted, failSettle bool
	onAdmitted               func()
	ended                    chan kind.ModelSettled
}

func (m *memory) Admitted(ctx context.Context, _ string, e kind.ModelAdmitted) error {
	if m.onAdmitted != nil {
		m.onAdmitted()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failAdmitted {
		return errors.New("disk full")
	}
	m.admitted = append(m.admitted, e)
	return nil
}

func (m *memory) Settled(_ context.Context, _ string, e kind.ModelSettled) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended <- e
	if m.failSettle {
		return errors.New("disk full")
	}
	m.settled = append(m.settled, e)
	return nil
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newLab serves one cell with the given limit of tokens; a nil provider leaves the
// role coder with a scripted target alone.
func newLab(t *testing.T, tokens int64, provider http.HandlerFunc) *lab {
	l := &lab{
		t: t, budget: budget.New(nil), logs: &lockedBuffer{},
		ledger: &memory{ended: make(chan kind.ModelSettled, 1000)},
	}
	log := slog.New(slog.NewTextHandler(l.logs, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))
	l.gateway = New("run", l.ledger, l.budget, log)
	if err := l.budget.Open(cellID, "", budget.Of(budget.Tokens, tokens).With(budget.MicroUSD, budget.Unlimited)); err != nil {
		t.Fatal(err)
	}
	if provider != nil {
		l.setRoutes(l.remote("first", provider))
	} else {
		l.setRoutes(scripted(t, "- {times: 1000000, reply: {text: "+reply+", usage: {input: 7, output: 5}}}"))
	}
	l.client = l.connect(Cell{ID: cellID, Roles: []string{"coder"}}, false)
	return l
}

func (l *lab) setRoutes(routes ...Route) {
	if err := l.gateway.SetRoutes(Routes{"coder": routes}); err != nil {
		l.t.Fatal(err)
	}
}

func scripted(t *testing.T, text string) Route {
	s, err := script.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Route{Name: "demo", Target: script.New(s), Price: &Price{}}
}

// bodyKey finds the body of a provider's request in its context.
type bodyKey struct{}

// remote starts a provider on the loopback and returns a route to it.
func (l *lab) remote(name string, handler http.HandlerFunc) Route {
	var mu sync.Mutex
	var bodies []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		bodies = append(bodies, fmt.Sprintf("%s %s\n%v\n%s", r.Method, r.RequestURI, r.Header, b))
		mu.Unlock()
		handler(w, r.WithContext(context.WithValue(r.Context(), bodyKey{}, b)))
	}))
	l.t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	l.hits = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return bodies
	}
	return l.route(name, openai.RemoteConfig{BaseURL: srv.URL + "/v1"})
}

func (l *lab) route(name string, cfg openai.RemoteConfig) Route {
	transport := &http.Transport{DisableCompression: true}
	l.t.Cleanup(transport.CloseIdleConnections)
	cfg.Key, cfg.Model, cfg.Transport = key, "gpt-x", transport
	target, err := openai.NewRemote(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	return Route{Name: name, Model: "gpt-x", Target: target}
}

// connect returns a client whose connections are socket pairs of which the gateway
// got the other end, as from the daemon.
func (l *lab) connect(cell Cell, h2 bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	return &http.Client{Transport: &http.Transport{
		Protocols:   &protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return l.pair(cell) },
	}}
}

func (l *lab) pair(cell Cell) (net.Conn, error) {
	a, b, err := sys.StreamPair()
	if err != nil {
		return nil, err
	}
	ours, theirs := fileConn(l.t, a), fileConn(l.t, b)
	done := make(chan error, 1)
	go func() { done <- l.gateway.ServeConn(context.Background(), theirs, cell) }()
	l.t.Cleanup(func() {
		ours.Close()
		if err := <-done; err != nil {
			l.t.Errorf("ServeConn: %v", err)
		}
	})
	return ours, nil
}

func fileConn(t *testing.T, f *os.File) net.Conn {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const chat = "http://mesh.skep.alt/v1/chat/completions"

func body(extra string) string {
	return `{"model":"coder","messages":[{"role":"user","content":"` + prompt + `"}]` + extra + `}`
}

// post returns status and body of one call.
func (l *lab) post(payload string) (int, string, http.Header) {
	l.t.Helper()
	resp, err := l.client.Post(chat, "application/json", strings.NewReader(payload))
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Error(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func (l *lab) totals() budget.Totals {
	got, err := l.budget.Totals(cellID)
	if err != nil {
		l.t.Fatal(err)
	}
	return got
}

// sendEvents answers with the given data of events, and the end mark.
func sendEvents(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range append(events, "[DONE]") {
		fmt.Fprintf(w, "data: %s\n\n", e)
		w.(http.Flusher).Flush()
	}
}

const (
	delta  = `{"choices":[{"index":0,"delta":{"content":"` + reply + `"}}]}`
	finish = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usage  = `{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":40,"prompt_tokens_details":{"cached_tokens":60},"completion_tokens_details":{"reasoning_tokens":30}}}`
)

func newWriter() *httptest.ResponseRecorder { return httptest.NewRecorder() }

// baseOf returns the base URL of a remote route.
func baseOf(t *testing.T, r Route) string {
	remote, ok := r.Target.(*openai.Remote)
	if !ok {
		t.Fatal("not a remote target")
	}
	return remote.BaseURL()
}
