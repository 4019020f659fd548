package boundary

import (
	"context"
	"net/netip"
	"time"

	"skep.dev/skep/internal/flow"
)

// Kind says which of a flow's records this is (B190).
type Kind uint8

// Intent is before an allowed flow opens, Outcome when it has ended, Denied a
// refusal, which may stand for many (B17). Held is none of it: a person has been asked, and
// the flow waits (B140); one of the others follows, unless the agent gives up.
const (
	Intent Kind = iota + 1
	Outcome
	Denied
	Held
)

// Record is one record of the boundary (B191), still without time and chain of
// the ledger.
type Record struct {
	Kind     Kind
	Time     time.Time
	Request  flow.Request
	Policy   string // version of the policy that decided
	Decision string // allow, block or fail; of Held ask
	Verdict  flow.Verdict
	Address  netip.AddrPort // dialed, only if connected
	Dropped  int            // resolved addresses that were not kept
	Up, Down uint64         // bytes
	Setup    time.Duration  // until the destination was reached; 0 where it was not
	Duration time.Duration
}

// Recorder appends to the ledger. When Record returns nil, the record is
// durable; any error means that it may not be. An Outcome is tried until it is
// written or the boundary ends. *NoRoom is for an intent that has to be refused.
type Recorder interface {
	Record(ctx context.Context, r Record) error
}

// NoRoom says that the cell's owner has too many flows in all cells together; the
// intent is not recorded.
type NoRoom struct{ Reason flow.Reason }

func (n *NoRoom) Error() string { return "no room for a flow: " + n.Reason.Token() }

// decisionOf is the recorded decision of a reason: what opened and ended well is
// "allow" (B63).
func decisionOf(why flow.Reason) string {
	if why == flow.None {
		return "allow"
	}
	return why.Word()
}
