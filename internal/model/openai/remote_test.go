package openai

import (
	"context"
	"encoding/json/v2"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestBaseURLMeansWhatItSeems(t *testing.T) {
	for _, bad := range []string{
		"", "api.example/v1", "ftp://api.example", "https://", "https://user:pw@api.example/v1",
		"https://api.example/v1?x=1", "https://api.example/v1?", "https://api.example/v1#f", "https://api.example/v1#",
		"https://api.example/v1/../admin", "https://api.example/v1%2e%2e/x", "https://api.example%23@evil/v1",
		"https://api.example/v1\r\nX: 1", "https://api.example//v1", `https://api.example\@evil/v1`, "https://api.example/v1 x",
		"http://api.example/v1", "http://127.0.0.1.evil.example/v1",
	} {
		if r, err := NewRemote(RemoteConfig{BaseURL: bad, Key: "k", Transport: http.DefaultTransport}); err == nil {
			t.Errorf("%q was taken for %s", bad, r.url)
		}
	}
	for good, want := range map[string]string{
		"https://api.example/v1":   "https://api.example/v1/chat/completions",
		"https://api.example/v1/":  "https://api.example/v1/chat/completions",
		"http://127.0.0.1:8080/v1": "http://127.0.0.1:8080/v1/chat/completions",
		"http://[::1]:8080":        "http://[::1]:8080/chat/completions",
	} {
		r, err := NewRemote(RemoteConfig{BaseURL: good, Key: "k", Transport: http.DefaultTransport})
		if err != nil || r.url != want {
			t.Errorf("%q: %v, %v", good, r, err)
		}
	}
	for _, key := range []string{"zq zw", "zq\r\nX: 1", "schlüssel", "zq\x00"} {
		_, err := NewRemote(RemoteConfig{BaseURL: "https://api.example/v1", Key: key, Transport: http.DefaultTransport})
		if err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

// outgoing returns what the provider would get.
func outgoing(t *testing.T, cfg RemoteConfig, call Call) string {
	t.Helper()
	cfg.BaseURL, cfg.Transport = "https://api.example/v1", http.DefaultTransport
	r, err := NewRemote(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r.outgoing(call))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLimitAndUsageAreSetAsTheServerTakesThem(t *testing.T) {
	parse := func(extra string) *Request {
		r, err := ParseRequest([]byte(plain + extra + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct {
		cfg        RemoteConfig
		extra      string
		has, hasNo string
	}{
		{RemoteConfig{}, ``, `"max_tokens":50`, "max_completion"},
		{RemoteConfig{LimitField: "max_completion_tokens"}, ``, `"max_completion_tokens":50`, `"max_tokens"`},
		{RemoteConfig{LimitField: "max_completion_tokens"}, `,"max_tokens":90`, `"max_tokens":50`, "max_completion"},
		{RemoteConfig{}, `,"max_completion_tokens":90`, `"max_completion_tokens":50`, `"max_tokens"`},
		{RemoteConfig{Model: "gpt-x"}, ``, `"model":"gpt-x"`, "coder"},
		{RemoteConfig{}, ``, `"model":"coder"`, "stream"},
		{RemoteConfig{}, `,"stream":true`, `"include_usage":true`, ""},
		{RemoteConfig{NoUsageChunk: true}, `,"stream":true,"stream_options":{"include_usage":true}`, `"stream":true`, "stream_options"},
	} {
		got := outgoing(t, c.cfg, Call{Role: "coder", Request: parse(c.extra), MaxOutput: 50})
		if !strings.Contains(got, c.has) || c.hasNo != "" && strings.Contains(got, c.hasNo) {
			t.Errorf("%+v %s: %s", c.cfg, c.extra, got)
		}
	}
}

// A whole answer in pieces with pauses below the idle bound arrives, however long
// it takes together; one pause above it ends the call.
func TestIdleBoundIsNoTotalBound(t *testing.T) {
	const idle = 300 * time.Millisecond
	pieces := 6
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range pieces {
			io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(idle / 3):
			case <-r.Context().Done():
			}
		}
		if pieces == 1 {
			<-r.Context().Done()
		}
		io.WriteString(w, `{"choices":[]}`)
	}))
	defer srv.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	r, err := NewRemote(RemoteConfig{BaseURL: srv.URL, Transport: tr, Idle: idle})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := ParseRequest([]byte(plain + `}`))
	ask := func() ([]byte, error) {
		a, err := r.Answer(context.Background(), Call{Role: "coder", Request: req})
		if err != nil {
			return nil, err
		}
		defer a.Close()
		return a.Next()
	}
	if got, err := ask(); err != nil || !strings.Contains(string(got), "choices") {
		t.Errorf("%s, %v", got, err)
	}
	pieces = 1
	if got, err := ask(); err == nil {
		t.Errorf("a silent provider was waited for: %s", got)
	}
}
