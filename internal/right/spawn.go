package right

import "fmt"

// Spawn lets a cell start sub-cells: Depth levels below it, Count of them in
// all. The zero Spawn allows none.
type Spawn struct {
	Depth int64 `json:"depth"`
	Count int64 `json:"count"`
}

// NewSpawn makes the canonical value: no depth or no count is no right.
func NewSpawn(s Spawn) (Spawn, error) {
	if s.Depth < 0 || s.Count < 0 {
		return Spawn{}, fmt.Errorf("spawn depth %d, count %d: want at least 0", s.Depth, s.Count)
	}
	if s.Depth == 0 || s.Count == 0 {
		return Spawn{}, nil
	}
	return s, nil
}

// Covers compares two rights of one cell. What a sub-cell may be given is
// covered by [Spawn.Below].
func (s Spawn) Covers(child Spawn) bool { return child.Depth <= s.Depth && child.Count <= s.Count }

// Below is the most that a sub-cell may hold when left of the count is left:
// one level less (R1).
func (s Spawn) Below(left int64) Spawn {
	v, _ := NewSpawn(Spawn{Depth: max(0, s.Depth-1), Count: max(0, min(left, s.Count))}) // neither is negative
	return v
}

// String is the canonical text: "depth=1 count=4", or "" for none.
func (s Spawn) String() string {
	if s.Depth == 0 || s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("depth=%d count=%d", s.Depth, s.Count)
}

// ParseSpawn takes what String gives.
func ParseSpawn(text string) (Spawn, error) {
	var s Spawn
	parts, err := parsePairs(text, "depth", "count")
	if err == nil && len(parts) > 0 {
		if s.Depth, err = parseAmount(parts["depth"]); err == nil {
			s.Count, err = parseAmount(parts["count"])
		}
	}
	if err == nil {
		s, err = NewSpawn(s)
	}
	return roundTrip("spawn", text, s, err)
}

// UnmarshalJSON takes what encoding/json makes of the struct, and nothing beside it.
func (s *Spawn) UnmarshalJSON(data []byte) error {
	type plain Spawn
	var j plain
	if err := strictJSON(data, &j); err != nil {
		return fmt.Errorf("spawn right: %w", err)
	}
	v, err := NewSpawn(Spawn(j))
	if err == nil {
		*s = v
	}
	return err
}
