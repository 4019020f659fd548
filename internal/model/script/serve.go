package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"skep.dev/skep/internal/model/openai"
)

// Serve answers Chat Completions and Models from the script in file on ln, which
// should be a loopback listener, until ctx ends. Any model name is taken as a
// role and any key is accepted. It returns nil when ctx ended it.
func Serve(ctx context.Context, ln net.Listener, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read script: %w", err)
	}
	s, err := Parse(b)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	srv := &http.Server{Handler: Handler(New(s)), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve script: %w", err)
	}
	return nil
}

// Handler serves one target without a gateway: no roles, rights or budgets.
func Handler(t *Target) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", t.serveChat)
	mux.HandleFunc("GET /v1/models", t.serveModels)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		(&openai.Refusal{Status: http.StatusNotFound, Code: "not_found",
			Message: "the scripted model serves /v1/chat/completions and /v1/models"}).Respond(w)
	})
	return mux
}

func (t *Target) serveChat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, openai.MaxBody))
	if err != nil {
		(&openai.Refusal{Status: http.StatusRequestEntityTooLarge, Code: "too_large",
			Message: fmt.Sprintf("the body is longer than %d bytes", openai.MaxBody)}).Respond(w)
		return
	}
	req, err := openai.ParseRequest(body)
	if err != nil {
		(&openai.Refusal{Status: http.StatusBadRequest, Code: "invalid_request", Message: err.Error()}).Respond(w)
		return
	}
	a, err := t.Answer(r.Context(), openai.Call{Role: req.Model, Request: req})
	if refusal, ok := errors.AsType[*openai.Refusal](err); ok {
		refusal.Respond(w)
		return
	}
	defer func() { _ = a.Close() }()
	flusher := http.NewResponseController(w)
	if req.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	var meter openai.Meter
	for {
		data, err := a.Next()
		if err != nil {
			break
		}
		seen := meter.Observe(data)
		switch {
		case !req.Stream:
			_, _ = w.Write(data)
		case !seen.OnlyUsage || req.WantsUsage():
			_, _ = w.Write(openai.AppendEvent(nil, data))
			_ = flusher.Flush()
		}
	}
	if req.Stream {
		_, _ = w.Write(openai.AppendEvent(nil, []byte(openai.Done)))
	}
}

func (t *Target) serveModels(w http.ResponseWriter, _ *http.Request) {
	roles := t.script.Roles()
	if len(roles) == 0 {
		roles = []string{"scripted"}
	}
	openai.WriteModels(w, roles)
}
