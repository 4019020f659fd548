package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

const instructions = `You are a coding agent. Work in the current directory with the tools.
Paths are relative to it. Change as little as is needed. When the task is done, or cannot be
done, say in a few sentences what you did and stop.`

// agent is one task's conversation.
type agent struct {
	client client
	dir    string
	steps  int
	out    io.Writer
}

// run asks the model, does what it wants, and asks again until it only talks.
func (a *agent) run(ctx context.Context, task string) error {
	messages := []message{
		{Role: "system", Content: instructions},
		{Role: "user", Content: task},
	}
	fmt.Fprintf(a.out, "task: %s\n", task)
	for range a.steps {
		reply, err := a.client.ask(ctx, messages, tools(), a.out)
		if err != nil {
			return fmt.Errorf("ask the model: %w", err)
		}
		messages = append(messages, reply)
		if len(reply.ToolCalls) == 0 {
			return nil
		}
		for _, call := range reply.ToolCalls {
			result := a.do(ctx, call)
			// A command that the user's Ctrl-C ended is no result to go on with.
			if err := ctx.Err(); err != nil {
				return err
			}
			fmt.Fprintln(a.out, indent(clip(result, 1200)))
			messages = append(messages, message{Role: "tool", ToolCallID: call.ID, Content: result})
		}
	}
	return fmt.Errorf("not done after %d answers", a.steps)
}

// do runs one tool. What goes wrong is the tool's result: the model may know what
// to do about it.
func (a *agent) do(ctx context.Context, call toolCall) string {
	var args map[string]string
	fmt.Fprintf(a.out, "> %s %s\n", call.Function.Name, clip(call.Function.Arguments, 200))
	if err := json.Unmarshal([]byte(call.Function.Arguments), &args); err != nil {
		return "error: arguments are not a JSON object of texts: " + err.Error()
	}
	result, err := a.tool(ctx, call.Function.Name, args)
	if err != nil {
		return strings.TrimSpace(result + "\nerror: " + err.Error())
	}
	return result
}

// clip cuts the middle out of a long text.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	half := most / 2
	cut := strings.ToValidUTF8(s[:half], "") + fmt.Sprintf("\n... %d bytes left out ...\n", len(s)-2*half)
	return cut + strings.ToValidUTF8(s[len(s)-half:], "")
}

// indent sets a tool's result apart from what the model says.
func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ")
}
