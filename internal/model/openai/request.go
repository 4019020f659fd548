// Package openai is the Chat Completions dialect: what a request may hold, what
// an answer looks like, and one remote target that speaks it.
//
// Its laws:
//   - A request is typed: a field that this file does not name is refused by its
//     name, never passed on (MG3). What goes upstream is printed from the typed
//     value, not copied from the agent.
//   - An answer is passed on as it came; it is looked at, never changed (MG10),
//     but for a usage chunk that the agent did not ask for.
//   - Host, path, query and headers of the upstream call come from the
//     configuration alone.
package openai

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strings"
)

// MaxBody bounds a request body in bytes.
const MaxBody = 32 << 20

// Request is a Chat Completions request: every field that may be sent. Fields
// that turn on a provider's own tools, storage or dearer service are absent
// on purpose.
type Request struct {
	Model               string          `json:"model"`
	Messages            []Message       `json:"messages"`
	Stream              bool            `json:"stream,omitzero"`
	StreamOptions       *StreamOptions  `json:"stream_options,omitzero"`
	MaxTokens           *int64          `json:"max_tokens,omitzero"`
	MaxCompletionTokens *int64          `json:"max_completion_tokens,omitzero"`
	Temperature         *float64        `json:"temperature,omitzero"`
	TopP                *float64        `json:"top_p,omitzero"`
	FrequencyPenalty    *float64        `json:"frequency_penalty,omitzero"`
	PresencePenalty     *float64        `json:"presence_penalty,omitzero"`
	N                   *int64          `json:"n,omitzero"`
	Seed                *int64          `json:"seed,omitzero"`
	Stop                jsontext.Value  `json:"stop,omitzero"`
	LogitBias           map[string]int  `json:"logit_bias,omitzero"`
	Logprobs            *bool           `json:"logprobs,omitzero"`
	TopLogprobs         *int64          `json:"top_logprobs,omitzero"`
	Tools               []Tool          `json:"tools,omitzero"`
	ToolChoice          jsontext.Value  `json:"tool_choice,omitzero"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls,omitzero"`
	ResponseFormat      *ResponseFormat `json:"response_format,omitzero"`
	ReasoningEffort     string          `json:"reasoning_effort,omitzero"`
	Verbosity           string          `json:"verbosity,omitzero"`
	User                string          `json:"user,omitzero"`
	PromptCacheKey      string          `json:"prompt_cache_key,omitzero"`
	Store               *bool           `json:"store,omitzero"` // only false
}

// StreamOptions asks for a last chunk that holds the usage.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// Message is one turn of the conversation.
type Message struct {
	Role       string     `json:"role"`
	Content    *Content   `json:"content,omitzero"`
	Name       string     `json:"name,omitzero"`
	ToolCalls  []ToolCall `json:"tool_calls,omitzero"`
	ToolCallID string     `json:"tool_call_id,omitzero"`
	Refusal    *string    `json:"refusal,omitzero"`
	// Reasoning text that some servers want back with the next request.
	ReasoningContent *string `json:"reasoning_content,omitzero"`
}

// ToolCall is a call that the model asked for. Arguments is the model's text,
// by habit but not by force a JSON object.
type ToolCall struct {
	Index    *int64   `json:"index,omitzero"`
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// Function is the name and the arguments of a ToolCall.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Tool is a function that the agent offers. Other kinds of tool run at the
// provider and are refused.
type Tool struct {
	Type     string  `json:"type"`
	Function ToolDef `json:"function"`
}

// ToolDef describes a function; Parameters is a JSON schema, passed on as it is.
type ToolDef struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
}

// ResponseFormat asks for JSON.
type ResponseFormat struct {
	Type       string         `json:"type"`
	JSONSchema jsontext.Value `json:"json_schema,omitzero"`
}

// ParseRequest reads and checks a request body. Its error is fit to be shown to
// the agent: it names fields, never values.
func ParseRequest(body []byte) (*Request, error) {
	var r Request
	if err := json.Unmarshal(body, &r, json.RejectUnknownMembers(true)); err != nil {
		return nil, plainError(err)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return &r, nil
}

// ErrUnknownField is the cause of a refusal of a field that is not allowed.
var ErrUnknownField = errors.New("field is not allowed here")

// plainError names the place of a JSON fault without quoting what stands there,
// but for the name of an unknown field, which is what the agent must know.
func plainError(err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		where := strings.ReplaceAll(strings.TrimPrefix(string(semantic.JSONPointer), "/"), "/", ".")
		if errors.Is(err, json.ErrUnknownName) {
			return fmt.Errorf("field %q: %w", short(where), ErrUnknownField)
		}
		return fmt.Errorf("field %q has a value of the wrong type", short(where))
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			where := strings.ReplaceAll(strings.TrimPrefix(string(syntactic.JSONPointer), "/"), "/", ".")
			return fmt.Errorf("field %q is given twice", short(where))
		}
		return fmt.Errorf("body is not valid JSON at byte %d", syntactic.ByteOffset)
	}
	return errors.New("body is not a valid request")
}

// short cuts a name for an error message.
func short(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}
