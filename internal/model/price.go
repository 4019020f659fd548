package model

import (
	"errors"
	"math"
	"math/bits"

	"skep.dev/skep/internal/model/openai"
)

// Price is what a target costs, in micro-dollars for a million tokens, so that
// $2.50 for a million is 2_500_000. All zero is free, as a local server is.
type Price struct {
	Version   string `json:"version,omitzero"` // of the price list (R12)
	Input     int64  `json:"input"`
	Output    int64  `json:"output"`
	Cached    int64  `json:"cached"`    // input that the provider had
	Reasoning int64  `json:"reasoning"` // output that is not shown
}

// errTooDear says that a cost does not fit an amount (R10).
var errTooDear = errors.New("the cost overflows")

func (p *Price) check() error {
	if p != nil && (p.Input < 0 || p.Output < 0 || p.Cached < 0 || p.Reasoning < 0) {
		return errors.New("a price is negative")
	}
	return nil
}

// cost gives micro-dollars, rounded up. Cached and reasoning tokens are part of
// the usage's input and output: each token is priced once (MG4).
func (p *Price) cost(u openai.Usage) (int64, error) {
	if p == nil {
		return 0, nil
	}
	var hi, lo uint64
	for _, part := range [][2]int64{
		{u.Input - u.Cached, p.Input}, {u.Cached, p.Cached},
		{u.Output - u.Reasoning, p.Output}, {u.Reasoning, p.Reasoning},
	} {
		h, l := bits.Mul64(uint64(part[0]), uint64(part[1]))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi, carry = bits.Add64(hi, h, carry)
		if carry != 0 {
			return 0, errTooDear
		}
	}
	const million = 1_000_000
	if hi >= million {
		return 0, errTooDear
	}
	n, rest := bits.Div64(hi, lo, million)
	if n >= math.MaxInt64 {
		return 0, errTooDear
	}
	if rest > 0 {
		n++
	}
	return int64(n), nil
}

// bound is the cost that in and out tokens cannot pass, whatever part of them
// turns out to be cached or reasoning.
func (p *Price) bound(in, out int64) (int64, error) {
	if p == nil {
		return 0, nil
	}
	dear := Price{Input: max(p.Input, p.Cached), Output: max(p.Output, p.Reasoning)}
	return dear.cost(openai.Usage{Input: in, Output: out})
}

// affordable is the most output tokens that left micro-dollars pay beside in
// input tokens; negative if they do not even pay those.
func (p *Price) affordable(left, in int64) int64 {
	if p == nil {
		return math.MaxInt64
	}
	input, err := p.bound(in, 0)
	if err != nil || input > left {
		return -1
	}
	each := max(p.Output, p.Reasoning)
	if each == 0 {
		return math.MaxInt64
	}
	// One is kept for the rounding of the sum.
	rest := left - input - 1
	if rest < 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(rest), 1_000_000)
	if hi >= uint64(each) {
		return math.MaxInt64
	}
	n, _ := bits.Div64(hi, lo, uint64(each))
	return int64(min(n, math.MaxInt64))
}
