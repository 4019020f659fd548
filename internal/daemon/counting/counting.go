// Package counting counts what native cells do for monitoring, and serves the numbers on a
// socket of the operator's (boundary.md, section 17).
//
// Its laws:
//   - It counts what was recorded, in the words of metrics, which are closed sets.
//   - The socket is in a directory that is the daemon's user's alone, and no cell sees it.
package counting

import (
	"sync"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/approval"
	"skep.dev/skep/internal/boundary/link"
	"skep.dev/skep/internal/daemon/connector/metrics"
	"skep.dev/skep/internal/ledger/kind"
)

// Cell counts for one cell. Its zero value counts nothing.
type Cell struct {
	Counts *metrics.Counts

	mu   sync.Mutex
	open map[string]int64 // by transport
	dns  [4]uint64
	v4   int64
	v6   int64
}

// Records counts what has become durable.
func (c *Cell) Records(records []*skepv1.FlowRecord) {
	if c.Counts == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]int64{}
	}
	for _, r := range records {
		c.Counts.Record(recordOf(r), c.open)
	}
}

func recordOf(r *skepv1.FlowRecord) link.Record {
	out := link.Record{
		Kind: map[skepv1.FlowRecord_Kind]string{
			skepv1.FlowRecord_KIND_INTENT: "intent", skepv1.FlowRecord_KIND_OUTCOME: "outcome", skepv1.FlowRecord_KIND_DENIED: "denied", skepv1.FlowRecord_KIND_HELD: "held",
		}[r.Kind],
		Wire: r.Wire, Transport: r.Transport, Direction: r.Direction, Destination: r.Destination, Address: r.Address, Connection: r.Connection,
		Decision: r.Decision, Reason: r.Reason, Count: r.Count, SetupMillis: int64(r.SetupMilliseconds),
	}
	if r.InnerProtocol != "" {
		out.Inner = &link.Inner{Protocol: r.InnerProtocol}
	}
	if r.Kind == skepv1.FlowRecord_KIND_OUTCOME {
		out.Bytes = &link.Bytes{Up: r.BytesUp, Down: r.BytesDown}
	}
	return out
}

// Numbers counts what a box of the cell has counted beside its records. A box that takes
// another's place begins anew.
func (c *Cell) Numbers(n *skepv1.BoxNumbers) {
	if c.Counts == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := [4]uint64{n.DnsAnswered, n.DnsEmpty, n.DnsRefused, n.DnsFailed}
	for i, what := range []string{"answered", "empty", "refused", "failed"} {
		if now[i] >= c.dns[i] {
			c.Counts.Event(metrics.DNSQueries, what, now[i]-c.dns[i])
		} else {
			c.Counts.Event(metrics.DNSQueries, what, now[i])
		}
	}
	c.dns = now
	c.names(int64(n.Names4), int64(n.Names6))
}

// names is for holders of mu.
func (c *Cell) names(v4, v6 int64) {
	c.Counts.Names("ipv4", v4-c.v4)
	c.Counts.Names("ipv6", v6-c.v6)
	c.v4, c.v6 = v4, v6
}

// Secret counts the use of a secret, or why it was refused.
func (c *Cell) Secret(reason string) {
	what := "used"
	if reason != "" {
		what = "refused"
	}
	c.Counts.Event(metrics.SecretEvents, what, 1)
}

// End takes away what the cell had.
func (c *Cell) End() {
	if c.Counts == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Counts.Gone(c.open)
	clear(c.open)
	c.names(0, 0)
}

// Journal counts cards and their answers as they are made durable.
type Journal struct {
	approval.Journal
	Counts *metrics.Counts
}

// Append implements approval.Journal.
func (j Journal) Append(cell string, body kind.Body) error {
	err := j.Journal.Append(cell, body)
	if err != nil {
		return err
	}
	switch b := body.(type) {
	case *kind.ApprovalOpened:
		j.Counts.Event(metrics.Approvals, "opened", 1)
	case *kind.ApprovalDecided:
		what := "denied"
		switch {
		case b.Decision == "allow":
			what = "granted"
		case b.Reason == "expired", b.Reason == "withdrawn", b.Reason == "revoked":
			what = b.Reason
		}
		j.Counts.Event(metrics.Approvals, what, 1)
	}
	return nil
}
