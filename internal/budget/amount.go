package budget

import (
	"fmt"
	"math"
	"strings"
)

// Kind names what is counted, each in its smallest unit (R10).
type Kind int

// The kinds. A new one goes before numKinds and gets a name below.
const (
	Tokens        Kind = iota // model tokens, input and output together
	MicroUSD                  // millionths of a US dollar
	Bytes                     // bytes over the boundary, both directions
	CPUMillis                 // milliseconds of processor time
	WallMillis                // milliseconds of a clock that only runs forward
	SandboxMillis             // milliseconds of a tool's sandbox
	numKinds
)

// Unlimited as a limit means that the account counts and never refuses. It must
// be said: an account's zero limit refuses everything but zero.
const Unlimited = math.MaxInt64

// String returns the name that a person reads in a refusal.
func (k Kind) String() string {
	names := [numKinds]string{"tokens", "usd_micro", "bytes", "cpu_ms", "wall_ms", "sandbox_ms"}
	if k < 0 || k >= numKinds {
		return fmt.Sprintf("kind(%d)", int(k))
	}
	return names[k]
}

// Amount holds one count for each kind, never below zero in a valid one.
type Amount [numKinds]int64

// Of returns an Amount with one kind set.
func Of(k Kind, n int64) Amount {
	var a Amount
	a[k] = n
	return a
}

// With returns a with one kind replaced.
func (a Amount) With(k Kind, n int64) Amount {
	a[k] = n
	return a
}

// IsZero reports whether nothing is counted.
func (a Amount) IsZero() bool { return a == Amount{} }

// Within reports whether every kind of a is at most that of b.
func (a Amount) Within(b Amount) bool {
	for k := range a {
		if a[k] > b[k] {
			return false
		}
	}
	return true
}

// String lists the kinds that are not zero: "tokens=12 usd_micro=3".
func (a Amount) String() string {
	var parts []string
	for k, n := range a {
		switch {
		case n == Unlimited:
			parts = append(parts, fmt.Sprintf("%v=unlimited", Kind(k)))
		case n != 0:
			parts = append(parts, fmt.Sprintf("%v=%d", Kind(k), n))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, " ")
}

// check refuses an amount with a negative part: it would give back what was
// never taken.
func (a Amount) check() error {
	for k, n := range a {
		if n < 0 {
			return fmt.Errorf("%v is negative: %d", Kind(k), n)
		}
	}
	return nil
}

// plus adds b to a; ok is false on overflow (R10), and then the sum is void.
func (a Amount) plus(b Amount) (sum Amount, ok bool) {
	for k := range a {
		if b[k] > 0 && a[k] > math.MaxInt64-b[k] {
			return Amount{}, false
		}
		sum[k] = a[k] + b[k]
	}
	return sum, true
}

// minus subtracts b from a where b is known to be within a.
func (a Amount) minus(b Amount) Amount {
	for k := range a {
		a[k] -= b[k]
	}
	return a
}

// min takes the smaller count of each kind.
func (a Amount) min(b Amount) Amount {
	for k := range a {
		a[k] = min(a[k], b[k])
	}
	return a
}
