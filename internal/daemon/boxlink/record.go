package boxlink

import (
	"fmt"
	"strconv"
	"strings"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/ledger/kind"
)

// Body makes the ledger's entry of a box's record (B191).
func Body(r *skepv1.FlowRecord) (kind.Body, error) {
	host, port := split(r.Destination)
	f := kind.Flow{
		Flow: r.Flow, Listener: r.Listener, Direction: r.Direction, Wire: r.Wire, Transport: r.Transport,
		Destination: kind.Bytes(host), Port: port, Address: r.Address, Peer: kind.Bytes(r.Peer), Connection: r.Connection,
		Decision: r.Decision, Reason: r.Reason, Rule: r.Rule, Line: r.Line, AllowWith: r.AllowWith,
		Generation: r.Generation, Policy: r.Policy, Inner: kind.Bytes(inner(r)),
		Count: r.Count, Dropped: uint64(r.Dropped), BytesUp: r.BytesUp, BytesDown: r.BytesDown, Ms: r.Milliseconds,
	}
	switch r.Kind {
	case skepv1.FlowRecord_KIND_INTENT:
		return (*kind.FlowIntent)(&f), nil
	case skepv1.FlowRecord_KIND_OUTCOME:
		return (*kind.FlowOutcome)(&f), nil
	case skepv1.FlowRecord_KIND_DENIED:
		return (*kind.FlowDenied)(&f), nil
	case skepv1.FlowRecord_KIND_HELD:
		return (*kind.FlowHeld)(&f), nil
	case skepv1.FlowRecord_KIND_UNSPECIFIED:
	}
	return nil, fmt.Errorf("record of kind %d is not one of intent, outcome, denied, held", r.Kind)
}

// Counted is what some records come to.
type Counted struct {
	Allowed, Refused int64
	Exhausted        bool // a flow found no bytes left
}

// Count adds records up. A flow that was let in and got nothing counts as both.
func Count(records []*skepv1.FlowRecord) Counted {
	var t Counted
	for _, r := range records {
		switch r.Kind {
		case skepv1.FlowRecord_KIND_INTENT:
			t.Allowed += attempts(r)
		case skepv1.FlowRecord_KIND_DENIED:
			t.Refused += attempts(r)
		case skepv1.FlowRecord_KIND_OUTCOME:
			if gotNothing(r) {
				t.Refused++
			}
		case skepv1.FlowRecord_KIND_UNSPECIFIED, skepv1.FlowRecord_KIND_HELD:
		}
		t.Exhausted = t.Exhausted || r.Reason == flow.BudgetExhausted.Token()
	}
	return t
}

// gotNothing tells an allowed flow that was refused all the same, by its address, its
// name or what it found, from one that was open and only ended.
func gotNothing(end *skepv1.FlowRecord) bool {
	switch end.Reason {
	case "", flow.Revoked.Token(), flow.IdleTimeout.Token():
		return false
	}
	return true
}

// attempts is how many a record stands for.
func attempts(r *skepv1.FlowRecord) int64 {
	if r.Count > 1 && r.Count < 1<<40 {
		return int64(r.Count)
	}
	return 1
}

// inner is what the agent said inside, in one line.
func inner(r *skepv1.FlowRecord) string {
	var parts []string
	for _, p := range []string{r.InnerProtocol, r.InnerName, r.InnerAlpn} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, " ")
}

// split takes "name:port", "[address]:port" or "*" apart. What has no port that
// can be read is a destination as a whole.
func split(destination string) (host string, port uint16) {
	i := strings.LastIndexByte(destination, ':')
	if i < 0 {
		return destination, 0
	}
	n, err := strconv.ParseUint(destination[i+1:], 10, 16)
	if err != nil {
		return destination, 0
	}
	return strings.TrimSuffix(strings.TrimPrefix(destination[:i], "["), "]"), uint16(n)
}
