package service

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"skep.dev/skep/internal/model"
	"skep.dev/skep/internal/model/control"
	"skep.dev/skep/internal/model/openai"
	"skep.dev/skep/internal/model/script"
)

// maxKey bounds a key in bytes.
const maxKey = 4096

// route makes one target. Errors never hold what a file holds.
func (s *Service) route(name string, t control.Target) (model.Route, error) {
	r := model.Route{Name: name, Model: t.Model, MaxOutput: t.MaxOutput}
	if t.Price != nil {
		r.Price = &model.Price{
			Version: t.Price.Version, Input: t.Price.Input, Output: t.Price.Output,
			Cached: t.Price.Cached, Reasoning: t.Price.Reasoning,
		}
	}
	var err error
	switch {
	case t.Script == (t.OpenAI != ""):
		return r, errors.New("it is neither a script nor an OpenAI-compatible URL, or both")
	case t.Script:
		r.Target, err = scripted(t.File)
		if r.Price == nil {
			r.Price = &model.Price{Version: "free"}
		}
	default:
		r.Target, err = s.remote(t)
	}
	return r, err
}

func scripted(f *os.File) (model.Target, error) {
	if f == nil {
		return nil, errors.New("its script was not passed")
	}
	text, err := io.ReadAll(io.LimitReader(f, script.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read its script: %w", err)
	}
	steps, err := script.Parse(text)
	if err != nil {
		return nil, err
	}
	return script.New(steps), nil
}

func (s *Service) remote(t control.Target) (model.Target, error) {
	key := ""
	if t.File != nil {
		b, err := io.ReadAll(io.LimitReader(t.File, maxKey+1))
		if err != nil {
			return nil, fmt.Errorf("read its key: %w", err)
		}
		// Keys in files end with a newline.
		if key = strings.TrimSpace(string(b)); key == "" || len(b) > maxKey {
			return nil, errors.New("its key is empty or too long")
		}
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
