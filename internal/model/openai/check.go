package openai

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
)

// check runs the named checks in order; the first fault is the answer.
func (r *Request) check() error {
	for _, check := range []func() error{
		r.checkModel, r.checkMessages, r.checkTools, r.checkLimits, r.checkChoices, r.checkStop,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkModel keeps a name from being anything but a name: it is looked up, and
// never becomes part of a URL.
func (r *Request) checkModel() error {
	if r.Model == "" {
		return errors.New(`field "model" is missing`)
	}
	if len(r.Model) > 128 {
		return errors.New(`field "model" is longer than 128 bytes`)
	}
	return nil
}

func (r *Request) checkMessages() error {
	if len(r.Messages) == 0 {
		return errors.New(`field "messages" is empty`)
	}
	roles := []string{"system", "developer", "user", "assistant", "tool"}
	for i, m := range r.Messages {
		if !slices.Contains(roles, m.Role) {
			return fmt.Errorf(`field "messages.%d.role" is none of system, developer, user, assistant, tool`, i)
		}
		for j, call := range m.ToolCalls {
			if call.Type != "function" && call.Type != "" {
				return fmt.Errorf(`field "messages.%d.tool_calls.%d.type" is not "function"`, i, j)
			}
		}
	}
	return nil
}

func (r *Request) checkTools() error {
	for i, tool := range r.Tools {
		if tool.Type != "function" {
			return fmt.Errorf(`field "tools.%d.type" is not "function": tools that run at the provider are off`, i)
		}
		if tool.Function.Name == "" {
			return fmt.Errorf(`field "tools.%d.function.name" is missing`, i)
		}
	}
	return r.checkToolChoice()
}

// checkToolChoice takes a word, or the name of a function; any other object
// could name a tool that runs at the provider.
func (r *Request) checkToolChoice() error {
	switch r.ToolChoice.Kind() {
	case 0, 'n', '"':
		return nil
	}
	var choice struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal(r.ToolChoice, &choice, json.RejectUnknownMembers(true)); err != nil || choice.Type != "function" {
		return errors.New(`field "tool_choice" is neither a word nor a function`)
	}
	return nil
}

// checkStop takes one text or a list of texts.
func (r *Request) checkStop() error {
	if len(r.Stop) > 64<<10 {
		return errors.New(`field "stop" is too large`)
	}
	var list []string
	switch r.Stop.Kind() {
	case 0, 'n', '"':
		return nil
	}
	if err := json.Unmarshal(r.Stop, &list); err != nil {
		return errors.New(`field "stop" is neither a text nor a list of texts`)
	}
	return nil
}

// checkLimits keeps what multiplies cost within what is reserved.
func (r *Request) checkLimits() error {
	if r.N != nil && *r.N != 1 {
		return errors.New(`field "n" must be 1`)
	}
	if r.MaxTokens != nil && r.MaxCompletionTokens != nil {
		return errors.New(`fields "max_tokens" and "max_completion_tokens" are both given`)
	}
	if limit := r.OutputLimit(); limit != nil && *limit < 1 {
		return errors.New("the output limit is below 1 token")
	}
	if r.Store != nil && *r.Store {
		return errors.New(`field "store" must be false: the provider is not to keep the call`)
	}
	return nil
}

func (r *Request) checkChoices() error {
	if r.StreamOptions != nil && !r.Stream {
		return errors.New(`field "stream_options" needs "stream": true`)
	}
	if f := r.ResponseFormat; f != nil && !slices.Contains([]string{"text", "json_object", "json_schema"}, f.Type) {
		return errors.New(`field "response_format.type" is none of text, json_object, json_schema`)
	}
	return nil
}

// OutputLimit returns the request's own limit of output tokens, nil if none.
func (r *Request) OutputLimit() *int64 {
	if r.MaxCompletionTokens != nil {
		return r.MaxCompletionTokens
	}
	return r.MaxTokens
}

// WantsUsage reports whether the agent asked for the usage chunk of a stream.
func (r *Request) WantsUsage() bool { return r.StreamOptions != nil && r.StreamOptions.IncludeUsage }
