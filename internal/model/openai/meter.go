package openai

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
)

// Meter looks at an answer as it passes and knows what it used.
type Meter struct {
	text  int64  // bytes of text, reasoning and tool calls that were produced
	usage *Usage // the last that was given: servers repeat a growing one
	bytes int64
	ended bool // a finish_reason was seen
}

// piece is what the meter reads of a chunk or a whole answer. Everything else,
// known or not, passes unread.
type piece struct {
	Choices []struct {
		Delta        produced `json:"delta"`
		Message      produced `json:"message"`
		FinishReason string   `json:"finish_reason"`
	} `json:"choices"`
	Usage *wireUsage     `json:"usage"`
	Error jsontext.Value `json:"error"`
}

type produced struct {
	Content          string     `json:"content"`
	Refusal          string     `json:"refusal"`
	Reasoning        string     `json:"reasoning"`
	ReasoningContent string     `json:"reasoning_content"`
	ToolCalls        []struct { // not ToolCall: a delta may lack any part
		Function Function `json:"function"`
	} `json:"tool_calls"`
}

func (p *produced) size() int64 {
	n := len(p.Content) + len(p.Refusal) + len(p.Reasoning) + len(p.ReasoningContent)
	for _, call := range p.ToolCalls {
		n += len(call.Function.Name) + len(call.Function.Arguments)
	}
	return int64(n)
}

// Seen says what one piece of an answer was.
type Seen struct {
	OnlyUsage bool // nothing but usage: not for an agent that did not ask
	Failed    bool // the provider's error in the place of a completion
}

// Observe takes one piece as Answer.Next returned it. What cannot be read counts
// with all its bytes.
func (m *Meter) Observe(data []byte) Seen {
	m.bytes += int64(len(data))
	var p piece
	// Providers are not as strict as we are towards agents.
	err := json.Unmarshal(data, &p, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		m.text += int64(len(data))
		return Seen{}
	}
	for _, c := range p.Choices {
		m.text += c.Delta.size() + c.Message.size()
		m.ended = m.ended || c.FinishReason != ""
	}
	if u := p.Usage.usage(); u != nil {
		m.usage = u
	}
	return Seen{
		OnlyUsage: len(p.Choices) == 0 && p.Usage != nil,
		Failed:    len(p.Error) > 0 && p.Error.Kind() != 'n' && len(p.Choices) == 0,
	}
}

// Bytes is the size of all that was observed.
func (m *Meter) Bytes() int64 { return m.bytes }

// Ended reports whether the model said that it was done.
func (m *Meter) Ended() bool { return m.ended }

// Usage returns what the provider counted; or, where it did not say or the answer
// was cut before it could, an estimate from bytes, never zero (MG4, M02, M03).
func (m *Meter) Usage(requestBytes int64) (u Usage, estimated bool) {
	if m.usage != nil {
		return *m.usage, false
	}
	return Usage{Input: Estimate(requestBytes), Output: Estimate(m.text)}, true
}

// Estimate gives tokens for bytes of text: a third, where English and code have
// a quarter, so that an estimate is not the cheap way out. At least one.
func Estimate(bytes int64) int64 { return bytes/3 + 1 }

// Bound gives tokens that a text of so many bytes cannot pass: tokenizers of
// byte pairs spend at least one byte on each. The rest is what templates add.
func Bound(bytes int64, messages int) int64 { return bytes + 16*int64(messages) + 64 }
