// Package script is a model from a written script (MG11, MG11a): deterministic, so
// that a demo, a test and a newcomer without a key have something to talk to.
//
// Its laws:
//   - The first step that matches and is not used up answers; each conversation
//     partner (a cell) has counts of its own.
//   - The same script and the same calls give the same bytes.
//   - No match is a 404 that prints the shape of the call and none of its content.
package script

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"

	"skep.dev/skep/internal/model/openai"
)

// MaxFile bounds a script in bytes.
const MaxFile = 8 << 20

// Script is a list of steps, looked through from the first.
type Script []Step

// Step is one answer and when it is given.
type Step struct {
	When  When  `yaml:"when"`
	Times int   `yaml:"times"` // how often; 1 if absent
	Reply Reply `yaml:"reply"`
	// Chunk is the most characters in one event of a stream; 16 if absent.
	Chunk int `yaml:"chunk"`
}

// When holds what a call must be; what is absent matches all.
type When struct {
	Role  string `yaml:"role"`  // the name that the agent gave as model
	Tools *bool  `yaml:"tools"` // whether the call offers tools
	// LastUser is a text that the last message of the user holds.
	LastUser string `yaml:"last_user"`
	// AfterTool names the tool whose result is the last message.
	AfterTool string `yaml:"after_tool"`
}

// Reply is what the model says.
type Reply struct {
	Text      string `yaml:"text"`
	ToolCalls []Tool `yaml:"tool_calls"`
	Usage     *Usage `yaml:"usage"` // counted from bytes if absent
}

// Tool is one call of a tool. Arguments is a mapping, or a text that is sent as
// it is (also one that is no JSON).
type Tool struct {
	Name      string `yaml:"name"`
	Arguments any    `yaml:"arguments"`

	wire string // Arguments as the dialect has it
}

// Usage is what the model says it used, in tokens.
type Usage struct {
	Input  int64 `yaml:"input"`
	Output int64 `yaml:"output"`
}

// Parse reads a script. Errors have line and column; an unknown key is one.
func Parse(file []byte) (Script, error) {
	if len(file) > MaxFile {
		return nil, fmt.Errorf("script is longer than %d bytes", MaxFile)
	}
	s, err := decode(file)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	if len(s) == 0 {
		return nil, errors.New("read script: it has no step")
	}
	for i := range s {
		if err := s[i].complete(); err != nil {
			return nil, fmt.Errorf("read script: step %d: %w", i+1, err)
		}
	}
	return s, nil
}

// decode keeps a panic of the YAML library, which a wrong tag causes, an error.
func decode(file []byte) (s Script, err error) {
	defer func() {
		if recover() != nil {
			s, err = nil, errors.New("the YAML cannot be read as a list of steps")
		}
	}()
	err = yaml.UnmarshalWithOptions(file, &s, yaml.Strict(), yaml.UseOrderedMap())
	return s, err
}

// complete sets what is absent and refuses what cannot be.
func (s *Step) complete() error {
	switch {
	case s.Times == 0:
		s.Times = 1
	case s.Times < 0:
		return errors.New("times is below 1")
	}
	switch {
	case s.Chunk == 0:
		s.Chunk = 16
	case s.Chunk < 0:
		return errors.New("chunk is below 1")
	}
	if s.Reply.Text == "" && len(s.Reply.ToolCalls) == 0 {
		return errors.New("reply has neither text nor tool_calls")
	}
	if u := s.Reply.Usage; u != nil && (u.Input < 0 || u.Output < 0 || u.Input+u.Output <= 0) {
		return errors.New("usage is not above 0")
	}
	for i := range s.Reply.ToolCalls {
		t := &s.Reply.ToolCalls[i]
		if t.Name == "" {
			return errors.New("a tool call has no name")
		}
		var err error
		if t.wire, err = arguments(t.Arguments); err != nil {
			return fmt.Errorf("arguments of %s: %w", t.Name, err)
		}
	}
	return nil
}

// call is what When looks at.
type call struct {
	role, lastUser, afterTool string
	tools                     bool
}

func shapeOf(role string, r *openai.Request) call {
	c := call{role: role, tools: len(r.Tools) > 0}
	for _, m := range r.Messages {
		if m.Role == "user" {
			c.lastUser = m.Content.Text()
		}
	}
	if last := r.Messages[len(r.Messages)-1]; last.Role == "tool" {
		c.afterTool = toolName(r.Messages, last.ToolCallID)
	}
	return c
}

// toolName finds the name of the call that a tool message answers, the latest
// one with that id.
func toolName(messages []openai.Message, id string) string {
	name := ""
	for _, m := range messages {
		for _, t := range m.ToolCalls {
			if t.ID == id {
				name = t.Function.Name
			}
		}
	}
	return name
}

func (w *When) matches(c call) bool {
	return (w.Role == "" || w.Role == c.role) &&
		(w.Tools == nil || *w.Tools == c.tools) &&
		(w.LastUser == "" || strings.Contains(c.lastUser, w.LastUser)) &&
		(w.AfterTool == "" || w.AfterTool == c.afterTool)
}

// Roles lists the roles that steps name, in order.
func (s Script) Roles() []string {
	var roles []string
	seen := map[string]bool{}
	for _, step := range s {
		if r := step.When.Role; r != "" && !seen[r] {
			seen[r] = true
			roles = append(roles, r)
		}
	}
	return roles
}
