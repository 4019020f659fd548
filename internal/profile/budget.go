package profile

import (
	"slices"

	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/strict"
)

// amountKey is one key of `budget:` with how it is read and printed.
type amountKey struct {
	key, example string
	read         func(*strict.Report, *strict.Node, string, string) (int64, bool)
	print        func(int64) string
	limit        func(*right.Budget) *right.Limit
}

func amountKeys() []amountKey {
	size, time := (*strict.Report).Size, (*strict.Report).Time
	sizeText, timeText := strict.FormatSize, strict.FormatTime
	milli := func(r *strict.Report, n *strict.Node, what, example string) (int64, bool) {
		return r.Fixed(n, what, example, 3)
	}
	milliText := func(v int64) string { return strict.FormatFixed(v, 3) }
	countText := func(v int64) string { return strict.FormatFixed(v, 0) }
	return []amountKey{
		{"cpus", "4", milli, milliText, func(b *right.Budget) *right.Limit { return &b.CPUs }},
		{"cpu_time", "30m", time, timeText, func(b *right.Budget) *right.Limit { return &b.CPUTime }},
		{"memory", "4GiB", size, sizeText, func(b *right.Budget) *right.Limit { return &b.Memory }},
		{"wall", "20m", time, timeText, func(b *right.Budget) *right.Limit { return &b.Wall }},
		{"pids", "256", (*strict.Report).Count, countText, func(b *right.Budget) *right.Limit { return &b.PIDs }},
		{"disk", "10GiB", size, sizeText, func(b *right.Budget) *right.Limit { return &b.Disk }},
		{"net", "1GiB", size, sizeText, func(b *right.Budget) *right.Limit { return &b.Net }},
	}
}

func budgetKeys() []string {
	var out []string
	for _, k := range amountKeys() {
		out = append(out, k.key)
	}
	return out
}

func (r parser) budget(n *strict.Node) {
	f, ok := r.Fields(n, "budget", "budget: {memory: 4GiB}", sectionKeys()["budget"])
	if !ok {
		return
	}
	for _, k := range amountKeys() {
		v, ok := f[k.key]
		if !ok {
			continue
		}
		what := "budget." + k.key
		r.p.lines[what] = v.Line
		optional := false
		if v.Kind == strict.Map {
			if v, optional, ok = r.long(v, what, k.example); !ok {
				continue
			}
		}
		if amount, ok := k.read(r.Report, v, what, k.example); ok {
			*k.limit(&r.p.Budget.Budget) = right.AtMost(amount)
		}
		if optional {
			r.p.Budget.IfAvailable = append(r.p.Budget.IfAvailable, k.key)
		}
	}
	slices.Sort(r.p.Budget.IfAvailable)
}

// long takes {limit: 4GiB, if_available: true} (L2b).
func (r parser) long(n *strict.Node, what, example string) (limit *strict.Node, optional, ok bool) {
	f, _ := r.Fields(n, what, "{limit: "+example+", if_available: true}", sectionKeys()["budget.*"])
	if v, ok := f["if_available"]; ok {
		optional, _ = r.Flag(v, what+".if_available")
	}
	limit, ok = f["limit"]
	if !ok {
		r.Add(n.Pos, "", what+" has no limit", "add limit: "+example)
	}
	return limit, optional, ok
}
