package openai

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// maxAnswer bounds an answer that is not streamed, in bytes.
const maxAnswer = 64 << 20

// ErrKeyInAnswer says that a provider sent the gateway's own key back; that piece
// and all after it are withheld.
var ErrKeyInAnswer = errors.New("the answer held the provider's key and was withheld")

// remoteAnswer is an answer that arrives. Next is called by one goroutine.
type remoteAnswer struct {
	body   io.ReadCloser
	idle   *idleTimer
	ctx    context.Context
	cancel context.CancelCauseFunc
	key    string
	events *Events // nil for an answer in one piece
	whole  bool    // that piece was given
}

// Read reads the body within the idle bound. Time that the agent takes to read
// does not count: nobody waits for the provider then.
func (a *remoteAnswer) Read(p []byte) (int, error) {
	a.idle.start()
	n, err := a.body.Read(p)
	a.idle.stop()
	if err != nil && !errors.Is(err, io.EOF) && context.Cause(a.ctx) != nil {
		err = context.Cause(a.ctx)
	}
	return n, err
}

// Next gives the next event's data, or the whole body.
func (a *remoteAnswer) Next() ([]byte, error) {
	data, err := a.next()
	if err != nil {
		return nil, err
	}
	if a.key != "" && bytes.Contains(data, []byte(a.key)) {
		return nil, ErrKeyInAnswer
	}
	return data, nil
}

func (a *remoteAnswer) next() ([]byte, error) {
	if a.events != nil {
		data, err := a.events.Next()
		if err == nil && string(data) == Done {
			return nil, io.EOF
		}
		return data, err
	}
	if a.whole {
		return nil, io.EOF
	}
	a.whole = true
	data, err := io.ReadAll(io.LimitReader(a, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer of provider: %w", err)
	case len(data) > maxAnswer:
		return nil, fmt.Errorf("answer of provider is longer than %d bytes", maxAnswer)
	case !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)):
		return nil, errors.New("answer of provider is no JSON")
	}
	return data, nil
}

// Close ends the call at the provider: the connection's stream is reset.
func (a *remoteAnswer) Close() error {
	a.cancel(nil)
	return a.body.Close()
}

// transportFault is a call without a response. Only the cause that we know is
// told: a transport's own words may hold addresses.
func (r *Remote) transportFault(ctx context.Context, sent *onceRead) *Refusal {
	f := &Refusal{Status: http.StatusBadGateway, Code: "provider_unreachable",
		Message: "the model's provider could not be reached; try again, or check the url of this target in config.yaml"}
	if errors.Is(context.Cause(ctx), errIdle) {
		f.Status, f.Code, f.Message = http.StatusGatewayTimeout, "provider_silent", errIdle.Error()
	}
	if sent.began.Load() {
		f.Code, f.Message = "provider_lost", "the call to the model's provider broke off before an answer; it may have been charged"
		return f
	}
	f.Charge, f.Elsewhere = Free, true
	return f
}

// statusFault turns every response that is no answer into a refusal.
func (r *Remote) statusFault(resp *http.Response, a *remoteAnswer, stream bool) *Refusal {
	if resp.StatusCode == http.StatusOK {
		kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if stream && kind != "text/event-stream" {
			return &Refusal{Status: http.StatusBadGateway, Code: "provider_no_stream",
				Message: "the provider did not answer with a stream", Charge: Unknown}
		}
		return nil
	}
	f := &Refusal{Status: http.StatusBadGateway, Charge: Free}
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		// The provider's words are not passed on: they like to quote the key.
		f.Code, f.Message = "provider_key_refused", "the provider refused the gateway's key; check the key of this target in config.yaml"
	case code == http.StatusTooManyRequests:
		f.Status, f.Code, f.Elsewhere = code, "provider_rate_limited", true
		f.Message = "the provider's rate limit is reached"
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		f.Status, f.Code = http.StatusBadRequest, "provider_refused"
		f.Message = fmt.Sprintf("the provider refused the request (%d): %s", code, a.words())
	case code >= 300 && code < 400:
		f.Code, f.Message = "provider_redirects", "the provider answered with a redirect, which is not followed"
	default:
		f.Code, f.Charge = "provider_failed", InputOnly
		f.Message = fmt.Sprintf("the provider failed (%d)", code)
	}
	return f
}

// words reads the sentence of an error body: short, printable, without the key.
func (a *remoteAnswer) words() string {
	b, err := io.ReadAll(io.LimitReader(a, 16<<10))
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err != nil || json.Unmarshal(b, &e) != nil || e.Error.Message == "" {
		return "no reason given"
	}
	text := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(e.Error.Message, "?"))
	if a.key != "" && strings.Contains(text, a.key) {
		return "a reason that held the key"
	}
	return short(text)
}
