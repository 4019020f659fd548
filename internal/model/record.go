package model

import (
	"context"

	"skep.dev/skep/internal/ledger/kind"
)

// Recorder makes an entry of a cell's ledger durable before it returns (MG5).
// Entries hold digests, sizes and names, never content (D12).
type Recorder interface {
	Admitted(ctx context.Context, cell string, e kind.ModelAdmitted) error
	Settled(ctx context.Context, cell string, e kind.ModelSettled) error
}

// The outcomes of kind.ModelSettled.
const (
	Done      = "done"      // the model finished
	Cancelled = "cancelled" // the agent went away; charged for what was made
	Cut       = "cut"       // the provider broke off in the answer; charged likewise
	Refused   = "refused"   // no answer, nothing charged; alone, without an admitted, of a call that was not made
	Failed    = "failed"    // no answer; its input is charged
	Uncertain = "uncertain" // it may have been charged: what was held stays held
)
