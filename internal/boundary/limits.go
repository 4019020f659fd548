package boundary

import (
	"fmt"
	"strings"
	"time"

	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/route"
)

// The limits of the boundary that exist now (B150). A profile only lowers them.
const (
	OpenFlows      = limit.OpenFlows
	OwnerPause     = 100 * time.Millisecond // no cell tries again sooner, once its owner has too many
	Itemised       = 200                    // refusals a second with a record of their own
	Coalesce       = 10 * time.Second
	Lag            = 2 * time.Second // of the kernel's log behind its counter, at most
	RecordWait     = 2 * time.Second
	WaitingRecords = 1024
	RecordBatch    = limit.RecordBatch
	ResolveTime    = 10 * time.Second
	DialTime       = 10 * time.Second // per address
	DialAllTime    = 30 * time.Second
	DialStagger    = 250 * time.Millisecond
	IdleTCP        = limit.IdleTCP
	FirstBytesTime = 10 * time.Second // for a TLS hello or an inner HTTP head, from its first byte
	BoxMemory      = limit.BoxMemory
)

// Limit is one row of the published table.
type Limit struct{ Name, Number, Owner, AtLimit string }

// Limits is every queue, buffer, table and deadline of the native path (B150).
func Limits() []Limit {
	n := func(format string, a ...any) string { return fmt.Sprintf(format, a...) }
	return []Limit{
		{"open flows", n("%d", OpenFlows), "cell", "reset, `busy`"},
		{"refusals itemised; coalescing", n("%d/s; %s", Itemised, Coalesce), "cell", "counted, not itemised"},
		{"kernel's log behind its counter", n("%s", Lag), "cell", "counted, not itemised"},
		{"resolve; dial per address; dial in all", n("%s; %s; %s", ResolveTime, DialTime, DialAllTime), "flow", "`resolve-failed`; next address; `dial-failed`"},
		{"between two dials", n("%s", DialStagger), "flow", "next address tried beside the first"},
		{"idle TCP", n("%s", IdleTCP), "flow", "closed, `idle-timeout`"},
		{"TLS hello; inner HTTP head; time for either", n("%d KiB; %d KiB; %s", route.MaxHello>>10, route.MaxInnerHead>>10, FirstBytesTime), "flow", "closed; 431; closed"},
		{"DNS names per family; queries; TCP clients; gate update", n("%d; %d/s; %d; %s", route.DNSNames, route.DNSQueries, route.DNSClients, route.AdmitTime), "cell", "oldest goes; SERVFAIL; refused; SERVFAIL"},
		{"rules", n("%d", policy.MaxRules), "cell", "load error"},
		{"record acknowledgement; waiting records; batch", n("%s; %d; %d", RecordWait, WaitingRecords, RecordBatch), "cell", "`record-unavailable`; `record-unavailable`; next batch"},
		{"box memory", n("%d MiB", BoxMemory>>20), "box", "box dies, flows end"},
	}
}

// Table prints the limits as Markdown, as docs/limits.md holds them.
func Table() string {
	var b strings.Builder
	b.WriteString("| limit | number | owner | at the limit |\n|---|---|---|---|\n")
	for _, l := range Limits() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", l.Name, l.Number, l.Owner, l.AtLimit)
	}
	return b.String()
}
