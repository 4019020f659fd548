package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
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
	if err := CheckValue(b); err != nil {
		clear(b)
		return nil, err
	}
	return &Value{line(b)}, nil
}

// line is b without the line break that a file ends with.
func line(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
}

// CheckValue says why b can be no value.
func CheckValue(b []byte) error {
	text := line(b)
	switch {
	case len(text) < MinValue || len(text) > MaxValue:
		return fmt.Errorf("a secret has %d to %d bytes", MinValue, MaxValue)
	case bytes.ContainsFunc(text, func(c rune) bool { return c < ' ' || c >= 0x7f }):
		return errors.New("a secret is printable ASCII on one line")
	case text[0] == ' ' || text[len(text)-1] == ' ':
		return errors.New("a secret neither begins nor ends with a space")
	}
	return nil
}

// Expiry is the end that a JSON Web Token names itself (RFC 7519, 4.1.4); the zero time for
// every other value.
func Expiry(b []byte) time.Time {
	parts := bytes.Split(line(b), []byte("."))
	if len(parts) != 3 {
		return time.Time{}
	}
	claims := make([]byte, base64.RawURLEncoding.DecodedLen(len(parts[1])))
	defer clear(claims)
	n, err := base64.RawURLEncoding.Decode(claims, parts[1])
	var said struct {
		Exp float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(claims[:n], &said) != nil || said.Exp <= 0 || said.Exp > 1<<40 {
		return time.Time{}
	}
	return time.Unix(int64(said.Exp), 0)
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
