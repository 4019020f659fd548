package right

import "fmt"

// Budget bounds what a cell may use. A limit that is absent in a child means
// the parent's (R1): take [Budget.Under] before comparing.
type Budget struct {
	CPUs    Limit `json:"cpus,omitzero"`     // a rate: thousandths of a processor
	CPUTime Limit `json:"cpu_time,omitzero"` // milliseconds
	Memory  Limit `json:"memory,omitzero"`   // bytes
	Wall    Limit `json:"wall,omitzero"`     // milliseconds
	PIDs    Limit `json:"pids,omitzero"`     // processes and threads at one time
	Disk    Limit `json:"disk,omitzero"`     // bytes in the layer
	Net     Limit `json:"net,omitzero"`      // bytes through the boundary, both ways
	Sandbox Limit `json:"sandbox,omitzero"`  // milliseconds of tool sandboxes
}

type namedLimit struct {
	key   string
	limit *Limit
}

// limits is the one list of the fields, in the canonical order.
func (b *Budget) limits() []namedLimit {
	return []namedLimit{
		{"cpus", &b.CPUs}, {"cpu_time", &b.CPUTime}, {"memory", &b.Memory}, {"wall", &b.Wall},
		{"pids", &b.PIDs}, {"disk", &b.Disk}, {"net", &b.Net}, {"sandbox", &b.Sandbox},
	}
}

// Under fills what is absent from the parent.
func (b Budget) Under(parent Budget) Budget {
	theirs := parent.limits()
	for i, mine := range b.limits() {
		*mine.limit = mine.limit.Or(*theirs[i].limit)
	}
	return b
}

// Covers compares limit by limit, an absent one being no bound.
func (b Budget) Covers(child Budget) bool {
	_, wider := b.Wider(child)
	return !wider
}

// Wider names the first limit in which child is wider than b.
func (b Budget) Wider(child Budget) (key string, wider bool) {
	theirs := child.limits()
	for i, mine := range b.limits() {
		if !mine.limit.Covers(*theirs[i].limit) {
			return mine.key, true
		}
	}
	return "", false
}

// String is the canonical text: "cpus=4000 memory=4294967296".
func (b Budget) String() string {
	var p pairs
	for _, l := range b.limits() {
		p.limit(l.key, *l.limit)
	}
	return p.b.String()
}

// ParseBudget takes what String gives.
func ParseBudget(text string) (Budget, error) {
	b, err := parseBudget(text)
	return roundTrip("budget", text, b, err)
}

func parseBudget(text string) (Budget, error) {
	var b Budget
	var keys []string
	for _, l := range b.limits() {
		keys = append(keys, l.key)
	}
	parts, err := parsePairs(text, keys...)
	if err != nil {
		return Budget{}, err
	}
	for _, l := range b.limits() {
		if *l.limit, err = pairLimit(parts, l.key); err != nil {
			return Budget{}, err
		}
	}
	return b, nil
}

// UnmarshalJSON takes what encoding/json makes of the struct, and nothing beside it.
func (b *Budget) UnmarshalJSON(data []byte) error {
	type plain Budget
	var j plain
	if err := strictJSON(data, &j); err != nil {
		return fmt.Errorf("budget right: %w", err)
	}
	*b = Budget(j)
	return nil
}
