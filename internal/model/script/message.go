package script

import (
	"encoding/json/v2"
	"fmt"

	"skep.dev/skep/internal/model/openai"
)

// created is the time that every answer carries: the same script gives the same
// bytes.
const created = 1_700_000_000

// message is one reply on its way to the wire.
type message struct {
	id, model string
	step      *Step
	firstCall int // number of the reply's first tool call
	usage     Usage
}

// usageOf takes the script's usage, or counts bytes.
func usageOf(s *Step, r *openai.Request) Usage {
	if s.Reply.Usage != nil {
		return *s.Reply.Usage
	}
	var in, out int64
	for _, m := range r.Messages {
		in += int64(len(m.Content.Text()))
	}
	out = int64(len(s.Reply.Text))
	for _, t := range s.Reply.ToolCalls {
		out += int64(len(t.Name) + len(t.wire))
	}
	return Usage{Input: openai.Estimate(in), Output: openai.Estimate(out)}
}

func (m *message) finish() string {
	if len(m.step.Reply.ToolCalls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

// The dialect's answer, as far as a script fills it.
type (
	wireAnswer struct {
		ID      string       `json:"id"`
		Object  string       `json:"object"`
		Created int64        `json:"created"`
		Model   string       `json:"model"`
		Choices []wireChoice `json:"choices"`
		Usage   *wireUsage   `json:"usage,omitzero"`
	}
	wireChoice struct {
		Index   int          `json:"index"`
		Delta   *wireMessage `json:"delta,omitzero"`
		Message *wireMessage `json:"message,omitzero"`
		Finish  *string      `json:"finish_reason"`
	}
	wireMessage struct {
		Role      string     `json:"role,omitzero"`
		Content   *string    `json:"content,omitzero"`
		ToolCalls []wireCall `json:"tool_calls,omitzero"`
	}
	wireCall struct {
		Index    *int         `json:"index,omitzero"`
		ID       string       `json:"id,omitzero"`
		Type     string       `json:"type,omitzero"`
		Function wireFunction `json:"function"`
	}
	wireFunction struct {
		Name      string `json:"name,omitzero"`
		Arguments string `json:"arguments"`
	}
	wireUsage struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Total      int64 `json:"total_tokens"`
	}
)

func (m *message) wireUsage() *wireUsage {
	return &wireUsage{Prompt: m.usage.Input, Completion: m.usage.Output, Total: m.usage.Input + m.usage.Output}
}

func (m *message) encode(object string, choices []wireChoice, usage *wireUsage) []byte {
	b, err := json.Marshal(wireAnswer{
		ID: m.id, Object: object, Created: created, Model: m.model, Choices: choices, Usage: usage,
	})
	if err != nil {
		// Only text that is no UTF-8 cannot be printed, and YAML has none.
		panic(fmt.Sprintf("script: print an answer: %v", err))
	}
	return b
}

// whole is the answer to a call without streaming.
func (m *message) whole() []byte {
	msg := wireMessage{Role: "assistant"}
	if m.step.Reply.Text != "" {
		msg.Content = &m.step.Reply.Text
	}
	for i, t := range m.step.Reply.ToolCalls {
		msg.ToolCalls = append(msg.ToolCalls, wireCall{
			ID: m.callID(i), Type: "function", Function: wireFunction{Name: t.Name, Arguments: t.wire},
		})
	}
	finish := m.finish()
	return m.encode("chat.completion", []wireChoice{{Message: &msg, Finish: &finish}}, m.wireUsage())
}

func (m *message) callID(i int) string { return fmt.Sprintf("call_%d", m.firstCall+i) }

// chunks is the answer to a call with streaming: the role, the text in pieces,
// each tool call's name and then its arguments in pieces, the end, the usage.
func (m *message) chunks() [][]byte {
	var out [][]byte
	delta := func(msg wireMessage) {
		out = append(out, m.encode("chat.completion.chunk", []wireChoice{{Delta: &msg}}, nil))
	}
	empty := ""
	delta(wireMessage{Role: "assistant", Content: &empty})
	for _, piece := range split(m.step.Reply.Text, m.step.Chunk) {
		delta(wireMessage{Content: &piece})
	}
	for i, t := range m.step.Reply.ToolCalls {
		delta(wireMessage{ToolCalls: []wireCall{{
			Index: &i, ID: m.callID(i), Type: "function", Function: wireFunction{Name: t.Name},
		}}})
		for _, piece := range split(t.wire, m.step.Chunk) {
			delta(wireMessage{ToolCalls: []wireCall{{Index: &i, Function: wireFunction{Arguments: piece}}}})
		}
	}
	finish := m.finish()
	out = append(out, m.encode("chat.completion.chunk", []wireChoice{{Delta: &wireMessage{}, Finish: &finish}}, nil))
	return append(out, m.encode("chat.completion.chunk", []wireChoice{}, m.wireUsage()))
}

// split cuts s into pieces of at most n characters, never within one.
func split(s string, n int) []string {
	var pieces []string
	for len(s) > 0 {
		end, count := len(s), 0
		for i := range s {
			if count == n {
				end = i
				break
			}
			count++
		}
		pieces = append(pieces, s[:end])
		s = s[end:]
	}
	return pieces
}
