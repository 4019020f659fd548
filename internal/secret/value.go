package secret

import (
	"bytes"
	"errors"
	"fmt"
)

// MinValue and MaxValue bound a value, in bytes: a shorter one could not be told from
// ordinary text in an answer (B130).
const (
	MinValue = 8
	MaxValue = 16 << 10
)

// Value is a secret. It is formatted as a word that says so, whatever the verb, and
// cannot be compared or made into text by accident.
type Value struct{ b []byte }

// NewValue takes over b, which may end in one line break: a file does.
func NewValue(b []byte) (*Value, error) {
	text := bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	switch {
	case len(text) < MinValue || len(text) > MaxValue:
		clear(b)
		return nil, fmt.Errorf("a secret has %d to %d bytes", MinValue, MaxValue)
	case bytes.ContainsFunc(text, func(c rune) bool { return c < ' ' || c >= 0x7f }):
		clear(b)
		return nil, errors.New("a secret is printable ASCII on one line")
	case text[0] == ' ' || text[len(text)-1] == ' ':
		clear(b)
		return nil, errors.New("a secret neither begins nor ends with a space")
	}
	return &Value{text}, nil
}

// Wipe overwrites the value. Nobody may be filling it in any more.
func (v *Value) Wipe() {
	if v != nil {
		clear(v.b)
		v.b = nil
	}
}

// Format says what it is, and never which.
func (v *Value) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("(a secret)")) }

// MarshalText refuses, so that no encoder writes a value down.
func (v *Value) MarshalText() ([]byte, error) { return nil, errors.New("a secret is not written down") }
