package model

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"skep.dev/skep/internal/model/openai"
)

// Property: the cost is that of exact arithmetic rounded up, or refused; and what
// is affordable beside a bound never costs more than there is.
func TestCostIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int64 { return rapid.Int64Range(0, math.MaxInt64/4).Draw(t, name) }
		p := Price{Input: n("pi"), Output: n("po"), Cached: n("pc"), Reasoning: n("pr")}
		u := openai.Usage{Input: n("i"), Output: n("o")}
		u.Cached = rapid.Int64Range(0, u.Input).Draw(t, "c")
		u.Reasoning = rapid.Int64Range(0, u.Output).Draw(t, "r")
		sum := new(big.Int)
		for _, part := range [][2]int64{{u.Input - u.Cached, p.Input}, {u.Cached, p.Cached}, {u.Output - u.Reasoning, p.Output}, {u.Reasoning, p.Reasoning}} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
		}
		sum.Add(sum, big.NewInt(999_999)).Div(sum, big.NewInt(1_000_000))
		got, err := p.cost(u)
		if sum.IsInt64() != (err == nil) || err == nil && got != sum.Int64() {
			t.Fatalf("%d, %v, want %v", got, err, sum)
		}
		if bound, err := p.bound(u.Input, u.Output); err == nil && got > bound {
			t.Fatalf("cost %d passes its bound %d", got, bound)
		}
	})
}

func TestAffordableIsWithinWhatIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Price{
			Input:  rapid.Int64Range(0, 1e9).Draw(t, "pi"),
			Output: rapid.Int64Range(0, 1e9).Draw(t, "po"),
		}
		left, in := rapid.Int64Range(0, 1e12).Draw(t, "left"), rapid.Int64Range(0, 1e7).Draw(t, "in")
		out := p.affordable(left, in)
		if out < 0 || out == math.MaxInt64 {
			return
		}
		if cost, err := p.bound(in, out); err != nil || cost > left {
			if out > 0 {
				t.Fatalf("%d output tokens cost %d of %d: %v", out, cost, left, err)
			}
		}
	})
}
