package right

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrOverflow is the answer to a sum that 63 bits do not hold (R10).
var ErrOverflow = errors.New("amount is too large to be held")

// Add is a+b for amounts of at least 0.
func Add(a, b int64) (int64, error) {
	if a < 0 || b < 0 || a > math.MaxInt64-b {
		return 0, fmt.Errorf("add %d and %d: %w", a, b, ErrOverflow)
	}
	return a + b, nil
}

// Mul is a*b for amounts of at least 0.
func Mul(a, b int64) (int64, error) {
	if a < 0 || b < 0 || a != 0 && b > math.MaxInt64/a {
		return 0, fmt.Errorf("multiply %d by %d: %w", a, b, ErrOverflow)
	}
	return a * b, nil
}

// Limit is an amount that may be absent. The zero Limit is absent: this right
// sets no bound of its own. A Limit of 0 is a bound, and nothing is left.
type Limit struct {
	amount int64
	set    bool
}

// AtMost is a limit; an amount below 0 becomes 0, the strictest.
func AtMost(amount int64) Limit { return Limit{amount: max(0, amount), set: true} }

// Value is the amount, and whether there is a bound at all.
func (l Limit) Value() (amount int64, bounded bool) { return l.amount, l.set }

// Covers tells whether child stays within l. No bound covers every bound.
func (l Limit) Covers(child Limit) bool {
	return !l.set || child.set && child.amount <= l.amount
}

// Or is l, or the parent's where l is absent.
func (l Limit) Or(parent Limit) Limit {
	if l.set {
		return l
	}
	return parent
}

// MarshalJSON is a number, or null where absent.
func (l Limit) MarshalJSON() ([]byte, error) {
	if !l.set {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, l.amount, 10), nil
}

// UnmarshalJSON takes what MarshalJSON gives; a fraction, an exponent and a
// negative number are errors.
func (l *Limit) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		*l = Limit{}
		return nil
	}
	v, err := parseAmount(string(data))
	if err != nil {
		return err
	}
	*l = AtMost(v)
	return nil
}

// IsZero makes `omitzero` leave absent limits out.
func (l Limit) IsZero() bool { return !l.set }

// parseAmount takes canonical digits only: no sign, no leading zero.
func parseAmount(s string) (int64, error) {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(v, 10) != s || v < 0 {
		return 0, fmt.Errorf("parse amount %q: want a whole number from 0 to %d", s, int64(math.MaxInt64))
	}
	return v, nil
}

// pairs is the canonical text of a type with named parts: `key=value` joined
// by single spaces, in a fixed order; absent parts are left out.
type pairs struct{ b strings.Builder }

func (p *pairs) add(key, value string) {
	if p.b.Len() > 0 {
		p.b.WriteByte(' ')
	}
	p.b.WriteString(key + "=" + value)
}

func (p *pairs) limit(key string, l Limit) {
	if l.set {
		p.add(key, strconv.FormatInt(l.amount, 10))
	}
}

func (p *pairs) list(key string, values []string) {
	if len(values) > 0 {
		p.add(key, strings.Join(values, ","))
	}
}

// parsePairs splits such a text. A repeated or unknown key is an error.
func parsePairs(text string, keys ...string) (map[string]string, error) {
	out := map[string]string{}
	if text == "" {
		return out, nil
	}
	for part := range strings.SplitSeq(text, " ") {
		key, value, ok := strings.Cut(part, "=")
		known := false
		for _, k := range keys {
			known = known || k == key
		}
		if _, twice := out[key]; !ok || !known || twice || value == "" {
			return nil, fmt.Errorf("%q is not one of %s with a value, once", part, strings.Join(keys, "=, ")+"=")
		}
		out[key] = value
	}
	return out, nil
}

func pairLimit(m map[string]string, key string) (Limit, error) {
	text, ok := m[key]
	if !ok {
		return Limit{}, nil
	}
	v, err := parseAmount(text)
	if err != nil {
		return Limit{}, fmt.Errorf("%s: %w", key, err)
	}
	return AtMost(v), nil
}

func pairList(m map[string]string, key string) []string {
	if m[key] == "" {
		return nil
	}
	return strings.Split(m[key], ",")
}
