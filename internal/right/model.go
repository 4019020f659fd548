package right

import "fmt"

// Model is what a cell may ask of models. Without a role it grants nothing.
type Model struct {
	Roles    []string `json:"roles,omitempty"`    // or ids of models
	Dialects []string `json:"dialects,omitempty"` // none listed: every one that the gateway speaks
	Tokens   Limit    `json:"tokens,omitzero"`    // input and output together
	Money    Limit    `json:"money,omitzero"`     // micro-dollars
}

// NewModel makes the canonical value.
func NewModel(m Model) (Model, error) {
	var err error
	if m.Roles, err = canonicalWords("role", m.Roles); err != nil {
		return Model{}, err
	}
	if m.Dialects, err = canonicalWords("dialect", m.Dialects); err != nil {
		return Model{}, err
	}
	if len(m.Roles) == 0 {
		return Model{}, nil // nothing is granted, so nothing limits it
	}
	return m, nil
}

// Covers: roles and dialects a subset, amounts within.
func (m Model) Covers(child Model) bool {
	if len(child.Roles) == 0 {
		return true
	}
	dialects := len(m.Dialects) == 0 || len(child.Dialects) > 0 && subset(child.Dialects, m.Dialects)
	return subset(child.Roles, m.Roles) && dialects && m.Tokens.Covers(child.Tokens) && m.Money.Covers(child.Money)
}

// String is the canonical text: "roles=coder tokens=200000 money=5000000".
func (m Model) String() string {
	var p pairs
	p.list("roles", m.Roles)
	p.list("dialects", m.Dialects)
	p.limit("tokens", m.Tokens)
	p.limit("money", m.Money)
	return p.b.String()
}

// ParseModel takes what String gives.
func ParseModel(text string) (Model, error) {
	m, err := parseModel(text)
	return roundTrip("model", text, m, err)
}

func parseModel(text string) (Model, error) {
	parts, err := parsePairs(text, "roles", "dialects", "tokens", "money")
	if err != nil {
		return Model{}, err
	}
	m := Model{Roles: pairList(parts, "roles"), Dialects: pairList(parts, "dialects")}
	if m.Tokens, err = pairLimit(parts, "tokens"); err != nil {
		return Model{}, err
	}
	if m.Money, err = pairLimit(parts, "money"); err != nil {
		return Model{}, err
	}
	return NewModel(m)
}

// UnmarshalJSON takes what encoding/json makes of the struct, and nothing beside it.
func (m *Model) UnmarshalJSON(data []byte) error {
	type plain Model
	var j plain
	if err := strictJSON(data, &j); err != nil {
		return fmt.Errorf("model right: %w", err)
	}
	v, err := NewModel(Model(j))
	if err == nil {
		*m = v
	}
	return err
}
