package openai

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// DefaultIdle is how long a provider may be silent, before its first byte and
// between two, if the configuration says nothing. There is no total bound.
const DefaultIdle = 10 * time.Minute

// RemoteConfig describes one OpenAI-compatible provider. Nothing in it comes from
// an agent.
type RemoteConfig struct {
	BaseURL string // such as https://api.openai.com/v1
	Key     string // "" for a server that wants none
	Model   string // the provider's name of the model; "" sends the role's
	// Transport makes the one connection attempt. It must not retry, follow
	// redirects, read proxies from the environment or decompress.
	Transport http.RoundTripper
	Idle      time.Duration // DefaultIdle if 0
	// LimitField is the name of the output limit where the agent gave none:
	// max_tokens (if "") or max_completion_tokens.
	LimitField string
	// NoUsageChunk is for a server that refuses stream_options; usage is then
	// estimated.
	NoUsageChunk bool
}

// Remote is a target at a provider. Safe for parallel use.
type Remote struct {
	cfg RemoteConfig
	url string
}

// NewRemote checks a configuration; its errors never hold the key.
func NewRemote(cfg RemoteConfig) (*Remote, error) {
	u, err := checkBase(cfg.BaseURL, cfg.Key != "")
	if err != nil {
		return nil, fmt.Errorf("base URL of provider: %w", err)
	}
	for i := range len(cfg.Key) {
		// A key becomes part of a header.
		if cfg.Key[i] <= ' ' || cfg.Key[i] > '~' {
			return nil, errors.New("key of provider: it holds a byte that is no printable ASCII")
		}
	}
	if cfg.Transport == nil {
		return nil, errors.New("transport to provider is missing")
	}
	switch cfg.LimitField {
	case "":
		cfg.LimitField = "max_tokens"
	case "max_tokens", "max_completion_tokens":
	default:
		return nil, errors.New("limit field is neither max_tokens nor max_completion_tokens")
	}
	if cfg.Idle == 0 {
		cfg.Idle = DefaultIdle
	}
	return &Remote{cfg: cfg, url: u + "/chat/completions"}, nil
}

// checkBase refuses whatever could make a URL mean another host or path than it
// seems to (M07), and a key in the clear over a network.
func checkBase(base string, hasKey bool) (string, error) {
	base = strings.TrimSuffix(base, "/")
	u, err := url.Parse(base)
	if err != nil {
		return "", errors.New("it cannot be parsed")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return "", errors.New("it is neither https nor http")
	case u.Host == "" || u.User != nil:
		return "", errors.New("it has no host, or a user")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(base, "#"):
		return "", errors.New("it has a query or a fragment")
	case strings.ContainsAny(base, "%\\@ \r\n\t") || strings.Contains(u.Path, "..") || strings.Contains(u.Path, "//"):
		return "", errors.New(`it holds one of % \ @ .. // or a blank`)
	case u.Scheme == "http" && hasKey && !isLoopback(u.Hostname()):
		return "", errors.New("a key is sent over http to the own machine only; use https")
	}
	return base, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Answer makes one attempt. A *Refusal is what the provider, or the way to it,
// said in place of an answer.
func (r *Remote) Answer(ctx context.Context, call Call) (Answer, error) {
	body, err := json.Marshal(r.outgoing(call))
	if err != nil {
		return nil, fmt.Errorf("print request for provider: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	idle := &idleTimer{after: r.cfg.Idle, cancel: cancel}
	sent := &onceRead{Reader: bytes.NewReader(body)}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, sent)
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("make request for provider: %w", err)
	}
	req.ContentLength = int64(len(body))
	req.Header = r.header(call.Request.Stream)

	idle.start()
	resp, err := r.cfg.Transport.RoundTrip(req) //nolint:bodyclose // remoteAnswer.Close closes it
	idle.stop()
	if err != nil {
		err = r.transportFault(ctx, sent)
		cancel(nil)
		return nil, err
	}
	a := &remoteAnswer{body: resp.Body, idle: idle, ctx: ctx, cancel: cancel, key: r.cfg.Key}
	if refusal := r.statusFault(resp, a, call.Request.Stream); refusal != nil {
		_ = a.Close()
		return nil, refusal
	}
	if call.Request.Stream {
		a.events = NewEvents(a)
	}
	return a, nil
}

// outgoing is the request that leaves: the agent's typed fields, with the model,
// the limit and the usage chunk set by us.
func (r *Remote) outgoing(call Call) *Request {
	out := *call.Request
	out.Model = call.Role
	if r.cfg.Model != "" {
		out.Model = r.cfg.Model
	}
	out.StreamOptions = nil
	if out.Stream && !r.cfg.NoUsageChunk {
		out.StreamOptions = &StreamOptions{IncludeUsage: true}
	}
	if call.MaxOutput > 0 {
		limit := call.MaxOutput
		completion := out.MaxCompletionTokens != nil ||
			out.MaxTokens == nil && r.cfg.LimitField == "max_completion_tokens"
		out.MaxTokens, out.MaxCompletionTokens = &limit, nil
		if completion {
			out.MaxTokens, out.MaxCompletionTokens = nil, &limit
		}
	}
	return &out
}

// header is the whole header: none of the agent's own goes upstream.
func (r *Remote) header(stream bool) http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json")
	if stream {
		h.Set("Accept", "text/event-stream")
	}
	h.Set("User-Agent", "skep")
	if r.cfg.Key != "" {
		h.Set("Authorization", "Bearer "+r.cfg.Key)
	}
	return h
}

// onceRead tells whether a byte of the body was asked for: before that nothing
// that costs can have reached the provider. Having no GetBody, such a body
// also keeps a transport from sending it twice (MG5).
type onceRead struct {
	io.Reader
	began atomic.Bool
}

func (o *onceRead) Read(p []byte) (int, error) {
	o.began.Store(true)
	return o.Reader.Read(p)
}

// idleTimer ends a call when its provider is silent for too long.
type idleTimer struct {
	after  time.Duration
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

var errIdle = errors.New("the provider was silent for too long")

func (i *idleTimer) start() {
	if i.timer == nil {
		i.timer = time.AfterFunc(i.after, func() { i.cancel(errIdle) })
		return
	}
	i.timer.Reset(i.after)
}

func (i *idleTimer) stop() { i.timer.Stop() }

// BaseURL is where the provider is, as configured.
func (r *Remote) BaseURL() string { return strings.TrimSuffix(r.url, "/chat/completions") }
