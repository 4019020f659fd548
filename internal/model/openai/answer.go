package openai

import (
	"encoding/json/v2"
	"fmt"
	"math"
	"net/http"
)

// Answer is one answer in progress. For a stream Next returns the data of one
// event at a time, without the end mark; otherwise the whole body, once. io.EOF
// ends it well. Close ends the call at the provider too, and may be called in
// parallel to Next.
type Answer interface {
	Next() ([]byte, error)
	Close() error
}

// Call is one admitted attempt, as a target sees it.
type Call struct {
	ID      string // unique for the gateway's life
	Cell    string // whose steps a script counts
	Role    string // what the agent named
	Request *Request
	// MaxOutput is the limit of output tokens that was reserved; 0 leaves the
	// request's own.
	MaxOutput int64
}

// Usage is what a provider says it counted. Cached is part of Input and
// Reasoning part of Output.
type Usage struct {
	Input, Output, Cached, Reasoning int64
}

// Total is what counts against a limit of tokens.
func (u Usage) Total() int64 { return u.Input + u.Output }

// wireUsage is the dialect's form of Usage.
type wireUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	PromptSub  *struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details,omitzero"`
	CompletionSub *struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details,omitzero"`
}

// usage returns nil for one that cannot be: a negative count would give back
// what others spent.
func (w *wireUsage) usage() *Usage {
	if w == nil {
		return nil
	}
	u := Usage{Input: w.Prompt, Output: w.Completion}
	if w.PromptSub != nil {
		u.Cached = min(w.PromptSub.Cached, u.Input)
	}
	if w.CompletionSub != nil {
		u.Reasoning = min(w.CompletionSub.Reasoning, u.Output)
	}
	const most = math.MaxInt64 / 4
	if u.Input < 0 || u.Output < 0 || u.Cached < 0 || u.Reasoning < 0 || u.Input > most || u.Output > most || u.Total() == 0 {
		return nil
	}
	return &u
}

// Error is the dialect's error body.
type Error struct {
	Error ErrorBody `json:"error"`
}

// ErrorBody is what SDKs show: a sentence, a type and a code.
type ErrorBody struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"param,omitzero"`
	Code    string `json:"code"`
}

// Refusal is a target's answer that is no completion: an HTTP status for the
// agent, a code that programs read, and a sentence.
type Refusal struct {
	Status  int
	Code    string
	Message string
	// Charge says what the attempt may have cost. The zero value knows nothing.
	Charge Charge
	// Elsewhere says that another target may do better. It counts only where
	// Charge is Free (MG2).
	Elsewhere bool
}

// Charge is what is known about the cost of a failed attempt.
type Charge int

// What may be known.
const (
	Unknown   Charge = iota // it was sent and nothing came back: its hold stays
	Free                    // the provider cannot have charged
	InputOnly               // the provider answered with a fault of its own after reading
)

// Error gives the code and the sentence.
func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// Body returns the refusal as an error body.
func (r *Refusal) Body() []byte {
	kind := "invalid_request_error"
	if r.Status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	b, err := json.Marshal(Error{Error: ErrorBody{Message: r.Message, Type: kind, Code: r.Code}})
	if err != nil { // a message that is no UTF-8
		return []byte(`{"error":{"message":"refused","type":"server_error","code":"refused"}}`)
	}
	return b
}

// Respond answers an HTTP request with the refusal. An SDK is told not to try
// again where that would not help.
func (r *Refusal) Respond(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Should-Retry", "false")
	w.WriteHeader(r.Status)
	_, _ = w.Write(append(r.Body(), '\n'))
}
