package config

import "skep.dev/skep/internal/strict"

// remoteKeys are the keys of a target that is a provider.
func remoteKeys() []string {
	return []string{"key", "model", "limit_field", "usage_chunk", "max_output", "idle", "price"}
}

func (r reader) remote(keys map[string]*strict.Node) Remote {
	var m Remote
	if n, ok := keys["model"]; ok {
		m.Model, _ = r.Str(n, "model", "the provider's name of it")
	}
	if n, ok := keys["limit_field"]; ok {
		m.LimitField, _ = r.OneOf(n, "limit_field", "max_tokens", "max_completion_tokens")
	}
	if n, ok := keys["usage_chunk"]; ok {
		asked, ok := r.Flag(n, "usage_chunk")
		m.NoUsageChunk = ok && !asked
	}
	if n, ok := keys["max_output"]; ok {
		m.MaxOutput, _ = r.Count(n, "max_output", "8192")
	}
	if n, ok := keys["idle"]; ok {
		m.IdleMillis, _ = r.Time(n, "idle", "5m")
	}
	if n, ok := keys["price"]; ok {
		m.Price = r.price(n)
	}
	return m
}

// price takes dollars for a million tokens, exact to a micro-dollar (R12).
func (r reader) price(n *strict.Node) *Price {
	const example = "{version: 2026-11, input: 1.25, output: 10}"
	f, ok := r.Fields(n, "price", example, []string{"version", "input", "output", "cached", "reasoning"})
	if !ok {
		return nil
	}
	dollars := func(key string) *int64 {
		at, ok := f[key]
		if !ok {
			return nil
		}
		v, ok := r.Fixed(at, "price: "+key, "1.25", 6)
		if !ok {
			return nil
		}
		return &v
	}
	input, output := dollars("input"), dollars("output")
	if input == nil || output == nil {
		r.Fault(n, "a price names what input and output cost", example)
		return nil
	}
	p := &Price{Input: *input, Output: *output, Cached: dollars("cached"), Reasoning: dollars("reasoning")}
	if v, ok := f["version"]; ok {
		p.Version, _ = r.Str(v, "version", "2026-11")
	}
	return p
}
