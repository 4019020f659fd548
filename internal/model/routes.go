package model

import (
	"context"
	"fmt"

	"skep.dev/skep/internal/model/openai"
)

// Target answers one admitted call, with one attempt. Its error is a
// *openai.Refusal wherever it knows what happened.
type Target interface {
	Answer(ctx context.Context, call openai.Call) (openai.Answer, error)
}

// DefaultMaxOutput is the limit of output tokens for a call that names none, to a
// target whose configuration names none.
const DefaultMaxOutput = 16_384

// Route is a target with what the gateway must know about it.
type Route struct {
	Name   string // of the target, for records
	Model  string // the provider's name of the model, for records
	Target Target
	Price  *Price // nil: not known
	// MaxOutput is the limit of output tokens where a call names none;
	// DefaultMaxOutput if 0.
	MaxOutput int64
}

// Routes maps each role to its targets, in the order in which they are asked.
// The zero value has no role.
type Routes map[string][]Route

// Check refuses a role that could not answer.
func (r Routes) Check() error {
	for role, routes := range r {
		if role == "" || len(role) > 128 {
			return fmt.Errorf("role %q is empty or longer than 128 bytes", role)
		}
		if len(routes) == 0 {
			return fmt.Errorf("role %s has no target", role)
		}
		for _, t := range routes {
			if t.Target == nil || t.Name == "" {
				return fmt.Errorf("role %s has a target that is not there", role)
			}
			if t.MaxOutput < 0 {
				return fmt.Errorf("target %s: max_output is negative", t.Name)
			}
			if err := t.Price.check(); err != nil {
				return fmt.Errorf("target %s: %w", t.Name, err)
			}
		}
	}
	return nil
}

func (t *Route) maxOutput() int64 {
	if t.MaxOutput == 0 {
		return DefaultMaxOutput
	}
	return t.MaxOutput
}
