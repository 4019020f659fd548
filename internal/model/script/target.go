package script

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"skep.dev/skep/internal/model/openai"
)

// maxCells bounds how many conversation partners are remembered; the one that
// was first seen is forgotten first.
const maxCells = 4096

// Target answers calls from a script. Safe for parallel use.
type Target struct {
	script Script

	mu    sync.Mutex
	cells map[string]*progress
	order []string // of cells, oldest first
}

// progress is what one cell has used of the script.
type progress struct {
	used  []int // by step
	calls int   // tool calls so far, for their ids
	turns int
}

// New returns a target on a script from Parse.
func New(s Script) *Target {
	return &Target{script: s, cells: map[string]*progress{}}
}

// Roles lists the roles that the script names, in order.
func (t *Target) Roles() []string { return t.script.Roles() }

// Answer gives the first step that matches, or a *openai.Refusal with status 404
// that prints the call's shape.
func (t *Target) Answer(_ context.Context, c openai.Call) (openai.Answer, error) {
	shape := shapeOf(c.Role, c.Request)
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.progressOf(c.Cell)
	for i := range t.script {
		step := &t.script[i]
		if p.used[i] >= step.Times || !step.When.matches(shape) {
			continue
		}
		p.used[i]++
		p.turns++
		m := message{
			id: fmt.Sprintf("chatcmpl-script-%d", p.turns), model: c.Role,
			step: step, firstCall: p.calls + 1, usage: usageOf(step, c.Request),
		}
		p.calls += len(step.Reply.ToolCalls)
		if c.Request.Stream {
			return &answer{pieces: m.chunks()}, nil
		}
		return &answer{pieces: [][]byte{m.whole()}}, nil
	}
	return nil, t.unmatched(shape, c.Request, p)
}

// progressOf is called with the lock held.
func (t *Target) progressOf(cell string) *progress {
	if p := t.cells[cell]; p != nil {
		return p
	}
	if len(t.order) >= maxCells {
		delete(t.cells, t.order[0])
		t.order = t.order[1:]
	}
	p := &progress{used: make([]int, len(t.script))}
	t.cells[cell] = p
	t.order = append(t.order, cell)
	return p
}

// unmatched says what a step would have to match. Names of roles and tools are
// shown, as they are what a script names; text is not.
func (t *Target) unmatched(c call, r *openai.Request, p *progress) *openai.Refusal {
	left := 0
	for i := range t.script {
		if p.used[i] < t.script[i].Times {
			left++
		}
	}
	last := r.Messages[len(r.Messages)-1]
	var b strings.Builder
	fmt.Fprintf(&b, "no step of the script matches this call: role %q, tools %t (%d), stream %t, %d messages, the last from %s",
		name(c.role), c.tools, len(r.Tools), r.Stream, len(r.Messages), last.Role)
	if last.Role == "tool" {
		fmt.Fprintf(&b, " (after_tool %q)", name(c.afterTool))
	}
	fmt.Fprintf(&b, ", last_user of %d bytes; %d of %d steps are not used up", len(c.lastUser), left, len(t.script))
	return &openai.Refusal{Status: http.StatusNotFound, Code: "script_no_match", Message: b.String(), Charge: openai.Free}
}

// name keeps a name that looks like one; anything else could be content.
func name(s string) string {
	for i := range len(s) {
		c := s[i]
		if c < 'a' || c > 'z' {
			if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("_-.:/", rune(c)) {
				return "?"
			}
		}
	}
	return s[:min(len(s), 64)]
}

// answer hands out pieces that are ready. Next and Close may run in parallel.
type answer struct {
	mu     sync.Mutex
	pieces [][]byte
	closed bool
}

func (a *answer) Next() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(a.pieces) == 0 {
		return nil, io.EOF
	}
	p := a.pieces[0]
	a.pieces = a.pieces[1:]
	return p, nil
}

func (a *answer) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return nil
}
