package service

import (
	"errors"
	"strings"
	"time"

	"skep.dev/skep/internal/model"
	"skep.dev/skep/internal/model/control"
	"skep.dev/skep/internal/model/openai"
	"skep.dev/skep/internal/model/script"
)

// maxKey bounds a key in bytes.
const maxKey = 4096

// route makes one target; content is its script or key. Errors never hold a key.
func (s *Service) route(name string, t control.Target, content []byte) (model.Route, error) {
	r := model.Route{Name: name, Model: t.Model, MaxOutput: t.MaxOutput}
	r.Price = price(t.Price)
	var err error
	switch {
	case t.Script == (t.OpenAI != ""):
		return r, errors.New("it is neither a script nor an OpenAI-compatible URL, or both")
	case t.Script:
		r.Target, err = scripted(content)
		if r.Price == nil {
			r.Price = &model.Price{Version: "free"}
		}
	default:
		r.Target, err = s.remote(t, content)
	}
	return r, err
}

// price fills in what is the same.
func price(p *control.Price) *model.Price {
	if p == nil {
		return nil
	}
	out := &model.Price{Version: p.Version, Input: p.Input, Output: p.Output, Cached: p.Input, Reasoning: p.Output}
	if p.Cached != nil {
		out.Cached = *p.Cached
	}
	if p.Reasoning != nil {
		out.Reasoning = *p.Reasoning
	}
	return out
}

func scripted(text []byte) (model.Target, error) {
	steps, err := script.Parse(text)
	if err != nil {
		return nil, err
	}
	return script.New(steps), nil
}

func (s *Service) remote(t control.Target, content []byte) (model.Target, error) {
	// Keys in files end with a newline.
	key := strings.TrimSpace(string(content))
	if content != nil && key == "" || len(content) > maxKey {
		return nil, errors.New("its key is empty or too long")
	}
	transport, err := s.transport(t.OpenAI)
	if err != nil {
		return nil, err
	}
	return openai.NewRemote(openai.RemoteConfig{
		BaseURL: t.OpenAI, Key: key, Model: t.Model, Transport: transport,
		Idle: time.Duration(t.IdleMillis) * time.Millisecond, LimitField: t.LimitField, NoUsageChunk: t.NoUsageChunk,
	})
}
