package boundary

import (
	"context"
	"net"
	"net/netip"

	"skep.dev/skep/internal/flow"
)

// Dest opens what a Permit allows. An error is a *Failure where the reason is
// known. It refuses a Permit that is not Valid.
type Dest interface {
	Open(ctx context.Context, p Permit) (Upstream, error)
}

// Upstream is one opened flow. Carry relays it and returns when both directions
// have ended; it owns agent, closes it, and ends early when ctx does.
type Upstream interface {
	Address() netip.AddrPort // what was dialed; invalid where nothing was
	Dropped() int            // how many resolved addresses were not kept
	Carry(ctx context.Context, agent net.Conn) End
}

// End is how a flow ended.
type End struct {
	Up, Down uint64
	Reason   flow.Reason // None for an ordinary end
	Inner    flow.Inner  // what the agent asked for, if it was read
}

// Failure is why a destination could not be opened (B62: only an allowed one can
// be unreachable).
type Failure struct {
	Reason  flow.Reason
	Detail  string // one of Reason.Errors
	Dropped int
	Err     error
}

func (f *Failure) Error() string {
	if f.Err == nil {
		return f.Reason.Token()
	}
	return f.Reason.Token() + ": " + f.Err.Error()
}

func (f *Failure) Unwrap() error { return f.Err }
