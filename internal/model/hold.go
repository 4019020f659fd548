package model

import (
	"errors"
	"fmt"
	"net/http"

	"skep.dev/skep/internal/budget"
	"skep.dev/skep/internal/model/openai"
)

// hold is what a call may use at most.
type hold struct {
	id        budget.HoldID
	amount    budget.Amount
	maxOutput int64
	lowered   bool // maxOutput is below what the agent asked
}

// leastOutput is the fewest output tokens that a call is made for.
const leastOutput = 16

// reserve holds the most that a call to route can cost: its input by the bound,
// its output by its own limit or the route's, lowered to what is left (M05). A
// parallel call may take what Left showed; then it looks again.
func (c *call) reserve(route *Route) (hold, *openai.Refusal) {
	account := c.session.cell.ID
	in := openai.Bound(int64(len(c.body))+256, len(c.request.Messages)+len(c.request.Tools))
	want := route.maxOutput()
	if asked := c.request.OutputLimit(); asked != nil {
		want = *asked
	}
	least := min(want, leastOutput)
	for range 16 {
		left := c.session.gateway.accounts.Left(account)
		out := min(want, left[budget.Tokens]-in)
		if out < least {
			return hold{}, exhausted(budget.Tokens, left, in+least)
		}
		out = min(out, route.Price.affordable(left[budget.MicroUSD], in))
		money, err := route.Price.bound(in, max(out, least))
		if out < least || err != nil {
			return hold{}, exhausted(budget.MicroUSD, left, money)
		}
		amount := budget.Of(budget.Tokens, in+out).With(budget.MicroUSD, 0)
		if amount[budget.MicroUSD], err = route.Price.bound(in, out); err != nil {
			return hold{}, exhausted(budget.MicroUSD, left, 0)
		}
		id, err := c.session.gateway.accounts.Reserve(account, amount)
		if err == nil {
			return hold{id: id, amount: amount, maxOutput: out, lowered: out < want}, nil
		}
		if _, raced := errors.AsType[*budget.Refused](err); !raced {
			c.session.gateway.log.Error("reserve for a model call", "cell", account, "error", err)
			return hold{}, &openai.Refusal{Status: http.StatusServiceUnavailable, Code: "budget_unavailable",
				Message: "the budget of this cell cannot be written; see `skep doctor`"}
		}
	}
	return hold{}, &openai.Refusal{Status: http.StatusServiceUnavailable, Code: "busy",
		Message: "parallel calls of this cell compete for the rest of its budget; try again"}
}

// exhausted names the knob that would help.
func exhausted(kind budget.Kind, left budget.Amount, need int64) *openai.Refusal {
	knob := "model.tokens"
	if kind == budget.MicroUSD {
		knob = "model.usd"
	}
	return &openai.Refusal{Status: http.StatusTooManyRequests, Code: "insufficient_quota",
		Message: fmt.Sprintf("the model budget of this cell is used up: %d %v left, this call may need %d; raise %s in the profile",
			left[kind], kind, need, knob)}
}

// priceMissing refuses a target without a price where money is limited: what it
// costs could not be held.
func (c *call) priceMissing(route *Route) *openai.Refusal {
	left := c.session.gateway.accounts.Left(c.session.cell.ID)[budget.MicroUSD]
	// An account that is only counted has more than any cell could spend.
	if route.Price != nil || left > budget.Unlimited/2 {
		return nil
	}
	return &openai.Refusal{Status: http.StatusServiceUnavailable, Code: "no_price",
		Message: fmt.Sprintf("this cell's money is limited and target %s has no price; limit model.tokens in the profile instead of model.usd", route.Name)}
}
