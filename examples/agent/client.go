package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// client asks one model of one server, streaming.
type client struct {
	baseURL, key, model string
}

// message is one turn of the conversation, as the API has it.
type message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

// toolCall is what the model wants to be done; its result goes back under its ID.
type toolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

// function names a tool; Arguments is a JSON object as text, written by the model
// and so not to be trusted to be one.
type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// chunk is one event of the stream.
type chunk struct {
	Choices []struct {
		Delta struct {
			Content   string `json:"content"`
			ToolCalls []struct {
				Index    int      `json:"index"`
				ID       string   `json:"id"`
				Function function `json:"function"`
			} `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// ask sends the conversation, prints text as it comes, and returns the answer.
func (c *client) ask(ctx context.Context, messages []message, tools []any, out io.Writer) (message, error) {
	body, err := json.Marshal(map[string]any{
		"model": c.model, "messages": messages, "tools": tools, "stream": true,
		"stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return message{}, err
	}
	url := strings.TrimRight(c.baseURL, "/") + "/chat/completions"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return message{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := new(http.Client).Do(req)
	if err != nil {
		return message{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return message{}, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return read(resp.Body, out)
}

// read puts the pieces of a streamed answer together.
func read(stream io.Reader, out io.Writer) (message, error) {
	reply := message{Role: "assistant"}
	// A stream that just ends may have been cut anywhere: only a reason to finish
	// makes it whole.
	finished := false
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		data = strings.TrimSpace(data)
		if !ok || data == "[DONE]" {
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return reply, fmt.Errorf("read an event: %w", err)
		}
		if c.Error != nil {
			return reply, errors.New(c.Error.Message)
		}
		for _, choice := range c.Choices {
			finished = finished || choice.FinishReason != ""
			reply.Content += choice.Delta.Content
			fmt.Fprint(out, choice.Delta.Content)
			for _, d := range choice.Delta.ToolCalls {
				if d.Index < 0 || d.Index > 64 {
					return reply, fmt.Errorf("tool call with index %d", d.Index)
				}
				// Calls arrive in pieces, possibly several at a time: the index says
				// to which one a piece belongs.
				for len(reply.ToolCalls) <= d.Index {
					reply.ToolCalls = append(reply.ToolCalls, toolCall{Type: "function"})
				}
				call := &reply.ToolCalls[d.Index]
				call.ID += d.ID
				call.Function.Name += d.Function.Name
				call.Function.Arguments += d.Function.Arguments
			}
		}
	}
	if reply.Content != "" {
		fmt.Fprintln(out)
	}
	if err := lines.Err(); err != nil {
		return reply, fmt.Errorf("read the answer: %w", err)
	}
	if !finished {
		return reply, errors.New("the answer broke off")
	}
	return reply, nil
}
