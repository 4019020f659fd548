package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRemoteTarget(t *testing.T) {
	c, faults := Parse("/etc/skep/config.yaml", []byte(`
targets:
  gpt:
    openai: https://api.example.org/v1
    key: file:/etc/skep/example.key
    model: gpt-large
    limit_field: max_completion_tokens
    usage_chunk: false
    max_output: 8_192
    idle: 2m
    price: {version: 2026-11, input: 1.25, output: 10, cached: 0.125}
roles: {coder: [gpt]}
`))
	if faults != nil {
		t.Fatal(faults.Render())
	}
	cached := int64(125_000)
	want := Remote{
		Model: "gpt-large", LimitField: "max_completion_tokens", NoUsageChunk: true, MaxOutput: 8192, IdleMillis: 120_000,
		Price: &Price{Version: "2026-11", Input: 1_250_000, Output: 10_000_000, Cached: &cached},
	}
	if diff := cmp.Diff(want, c.Targets[0].Remote); diff != "" {
		t.Error(diff)
	}
}

func TestFaultyRemoteTargets(t *testing.T) {
	for text, want := range map[string]string{
		"{script: demo.yaml, price: {input: 1, output: 1}}":                   "a script needs no price",
		"{openai: 'https://a.example', price: {input: 1}}":                    "input and output",
		"{openai: 'https://a.example', price: {input: 1.0000001, output: 1}}": "input",
		"{openai: 'https://a.example', limit_field: tokens}":                  "limit_field",
		"{openai: 'https://a.example', max_output: -1}":                       "max_output",
		"{openai: 'https://a.example', usage_chunk: maybe}":                   "usage_chunk",
		"{openai: 'https://a.example', organisation: x}":                      "unknown key",
	} {
		_, faults := Parse("/c.yaml", []byte("targets: {a: "+text+"}\n"))
		if faults == nil || !strings.Contains(faults.Render(), want) {
			t.Errorf("%s: %v, want %q", text, faults, want)
		}
	}
}
