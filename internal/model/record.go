package model

import "context"

// Recorder makes an entry durable before it returns (MG5). It holds digests,
// sizes and names, never content (D12).
type Recorder interface {
	Admitted(ctx context.Context, e Admitted) error
	Settled(ctx context.Context, e Settled) error
}

// Admitted is written before a call is sent.
type Admitted struct {
	Call          string `json:"call"` // names this attempt, in both entries
	Cell          string `json:"cell"`
	Agent         string `json:"agent,omitzero"`
	Flow          string `json:"flow,omitzero"`
	Role          string `json:"role"`
	Target        string `json:"target"`
	Model         string `json:"model,omitzero"`
	Stream        bool   `json:"stream"`
	Messages      int    `json:"messages"`
	Tools         int    `json:"tools"`
	RequestBytes  int64  `json:"request_bytes"`
	RequestSHA256 string `json:"request_sha256"`
	HeldTokens    int64  `json:"held_tokens"`
	HeldMicroUSD  int64  `json:"held_usd_micro"`
	MaxOutput     int64  `json:"max_output"`
	Lowered       bool   `json:"lowered"` // MaxOutput is below what was asked
	PriceVersion  string `json:"price_version,omitzero"`
}

// Outcome says how an attempt ended.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"    // the model finished
	HungUp  Outcome = "hung-up" // the agent went away; charged for what was made
	Cut     Outcome = "cut"     // the provider broke off in the answer
	Refused Outcome = "refused" // no answer, nothing charged
	Failed  Outcome = "failed"  // no answer, its input is charged
	Unsure  Outcome = "unsure"  // it may have been charged: the hold stays
)

// Settled is written after an attempt ended. Where Outcome is Unsure nothing is
// charged and the amounts of Admitted stay held.
type Settled struct {
	Call           string  `json:"call"`
	Cell           string  `json:"cell"`
	Outcome        Outcome `json:"outcome"`
	Reason         string  `json:"reason,omitzero"` // a token
	Status         int     `json:"status"`          // what the agent got
	Input          int64   `json:"input"`
	Output         int64   `json:"output"`
	Cached         int64   `json:"cached"`    // part of Input
	Reasoning      int64   `json:"reasoning"` // part of Output
	Estimated      bool    `json:"estimated"` // the provider did not say
	MicroUSD       int64   `json:"usd_micro"`
	Priced         bool    `json:"priced"` // false: no price is known
	ResponseBytes  int64   `json:"response_bytes"`
	ResponseSHA256 string  `json:"response_sha256,omitzero"`
	Millis         int64   `json:"ms"`
}
