// Package metrics counts what boxes decided, in the text form that monitoring reads
// (boundary.md, section 17).
//
// Its laws:
//   - It counts from records alone: what is not recorded did not happen.
//   - Every label is a word of a closed set, whatever a record says. None holds a name, an
//     address or anything else that an agent chose (B200).
//   - Who asks gets numbers and nothing else.
package metrics

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"skep.dev/skep/internal/boundary/link"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
)

// Counts is what was counted since the start. Its zero value is ready, a nil one counts
// nothing.
type Counts struct {
	mu         sync.Mutex
	flows      map[flowLabels]uint64
	active     map[string]int64 // by transport
	refusals   map[string]uint64
	limits     map[string]uint64
	inner      map[string]uint64
	bytes      [2]uint64 // up, down
	setup      map[string]*histogram
	swaps      [2]uint64 // done, refused
	failures   uint64    // of records
	dns        map[string]uint64
	names      map[string]int64 // by family
	gate       map[string]uint64
	secrets    map[string]uint64
	approvals  map[string]uint64
	generation uint64
}

type flowLabels struct{ route, transport, outcome string }

// bounds are the upper ends of a histogram's parts, in milliseconds.
var bounds = [...]int64{1, 5, 25, 100, 500, 2500, 10_000}

type histogram struct {
	parts [len(bounds)]uint64
	count uint64
	sum   int64 // milliseconds
}

func (h *histogram) add(ms int64) {
	for i, b := range bounds {
		if ms <= b {
			h.parts[i]++
		}
	}
	h.count++
	h.sum += ms
}

// Record counts one record of a box whose open flows, by transport, are open. How a flow
// that was allowed came out is known at its end.
func (c *Counts) Record(r link.Record, open map[string]int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if what := gateEvent(r); what != "" {
		note(&c.gate, what, max(r.Count, 1))
	}
	if c.flows == nil {
		c.flows, c.active, c.refusals = map[flowLabels]uint64{}, map[string]int64{}, map[string]uint64{}
		c.limits, c.inner, c.setup = map[string]uint64{}, map[string]uint64{}, map[string]*histogram{}
	}
	l := flowLabels{routeOf(r), transportOf(r.Transport), outcomeOf(r)}
	n := max(r.Count, 1)
	switch r.Kind {
	case "held", "secret":
		return // no flow is decided
	case "intent":
		open[l.transport]++
		c.active[l.transport]++
		return
	case "outcome":
		if open[l.transport] > 0 {
			open[l.transport]--
			c.active[l.transport]--
		}
		c.ended(r, l.route)
	}
	c.flows[l] += n
	why, err := flow.ParseReason(r.Reason)
	if err != nil || r.Kind == "outcome" && l.outcome == "allowed" {
		return
	}
	c.refusals[why.Token()] += n
	if l.outcome == "refused" && limited(why) {
		c.limits[why.Token()] += n
	}
}

// ended counts what only the end of an allowed flow tells.
func (c *Counts) ended(r link.Record, route string) {
	if r.Bytes != nil {
		c.bytes[0] += r.Bytes.Up
		c.bytes[1] += r.Bytes.Down
	}
	if r.Address != "" {
		if c.setup[route] == nil {
			c.setup[route] = &histogram{}
		}
		c.setup[route].add(max(r.SetupMillis, 0))
	}
	if r.Inner == nil {
		return
	}
	outcome := "passed"
	switch why, _ := flow.ParseReason(r.Reason); why {
	case flow.TLSNameMissing, flow.TLSNameMismatch, flow.TLSRequired, flow.ECHRefused, flow.HTTPRequired, flow.HTTPHostMismatch, flow.MethodNotAllowed, flow.PathNotAllowed, flow.PathAmbiguous:
		outcome = "refused"
	}
	c.inner[outcome]++
}

// gateEvent is what the early gate of a native cell did, of a record that it made (B17).
func gateEvent(r link.Record) string {
	why, _ := flow.ParseReason(r.Reason)
	switch {
	case r.Wire != "native" || r.Connection != "" || r.Direction == "in":
		return ""
	case r.Kind == "held":
		return "held"
	case r.Kind != "denied":
		return ""
	case r.Destination == "*":
		return "counted"
	case limited(why):
		return "shut"
	}
	return "refused"
}

func note(into *map[string]uint64, what string, n uint64) {
	if *into == nil {
		*into = map[string]uint64{}
	}
	(*into)[what] += n
}

// Family is one that Event counts.
type Family int

// The families of Event.
const (
	DNSQueries Family = iota
	SecretEvents
	Approvals
)

// Event counts what has no record of a flow; the word has to be of a closed set.
func (c *Counts) Event(f Family, what string, n uint64) {
	if c == nil || n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	note([...]*map[string]uint64{&c.dns, &c.secrets, &c.approvals}[f], what, n)
}

// Names counts the names that have an address, by family; change may be negative.
func (c *Counts) Names(family string, change int64) {
	if c == nil || change == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = map[string]int64{}
	}
	c.names[family] += change
}

// Swap counts a change of policy, and keeps the newest generation that was attached.
func (c *Counts) Swap(done bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if done {
		c.swaps[0]++
		return
	}
	c.swaps[1]++
}

// Attached notes a generation.
func (c *Counts) Attached(generation uint64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation = max(c.generation, generation)
}

// Gone takes away the flows that were open in a box that is gone.
func (c *Counts) Gone(open map[string]int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for transport, n := range open {
		c.active[transport] -= n
	}
}

// Unwritten counts records that could not be written.
func (c *Counts) Unwritten(n int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures += uint64(n)
}

// routeOf is the row of dispatch that a destination belongs to (B70, B201).
func routeOf(r link.Record) string {
	host, _, _ := strings.Cut(r.Destination, ":")
	switch {
	case r.Direction == "in":
		return "ingress"
	case r.Destination == "" || r.Destination == "*":
		return "unresolved"
	case host == name.Model:
		return "mesh-entrypoint"
	case host == name.Policy:
		return "policy"
	case name.UnderAlt(host):
		return "mesh-service"
	}
	return "external"
}

func transportOf(word string) string {
	if word == "tcp" || word == "udp" {
		return word
	}
	return "other"
}

// outcomeOf puts a decision into one of six words (B201).
func outcomeOf(r link.Record) string {
	why, err := flow.ParseReason(r.Reason)
	switch {
	case r.Reason != "" && err != nil:
		return "error"
	case r.Kind != "denied":
		return cameOut(why)
	case why == flow.ApprovalNeeded:
		return "asked"
	case limited(why) || why.Status() == 400 || why.Status() == 405 || why.Status() == 408 || why.Status() == 431 || why.Status() == 501 || why.Status() == 505:
		return "refused"
	case why == flow.PolicyUnavailable || why == flow.RecordUnavailable:
		return "error"
	}
	return "denied"
}

// cameOut is what became of a flow that was allowed.
func cameOut(why flow.Reason) string {
	switch why {
	case flow.ResolveFailed, flow.DialFailed, flow.UpstreamTLSFailed, flow.NoProvider, flow.ProxyFailed:
		return "unreachable"
	case flow.ResolvedAddressDenied, flow.TLSNameMissing, flow.TLSNameMismatch, flow.TLSRequired, flow.ECHRefused, flow.HTTPRequired, flow.HTTPHostMismatch, flow.MethodNotAllowed, flow.PathNotAllowed, flow.PathAmbiguous:
		return "denied"
	}
	return "allowed"
}

func limited(why flow.Reason) bool {
	return why == flow.Busy || why == flow.RateLimited || why == flow.BudgetExhausted || why == flow.HeadTooLarge || why == flow.HeadTimeout
}

// Write writes all, in the text form 0.0.4.
func (c *Counts) Write(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := func(name, kind string) string {
		fmt.Fprintf(w, "# TYPE skep_box_%s %s\n", name, kind)
		return "skep_box_" + name
	}
	n := head("flows_total", "counter")
	for _, l := range slices.SortedFunc(maps.Keys(c.flows), func(a, b flowLabels) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		fmt.Fprintf(w, "%s{route=%q,transport=%q,outcome=%q} %d\n", n, l.route, l.transport, l.outcome, c.flows[l])
	}
	labelled(w, head("flows_active", "gauge"), "transport", c.active)
	labelled(w, head("refusals_total", "counter"), "reason", c.refusals)
	labelled(w, head("limit_hits_total", "counter"), "limit", c.limits)
	labelled(w, head("inner_checks_total", "counter"), "outcome", c.inner)
	labelled(w, head("dns_queries_total", "counter"), "outcome", c.dns)
	labelled(w, head("dns_names", "gauge"), "family", c.names)
	labelled(w, head("gate_events_total", "counter"), "kind", c.gate)
	labelled(w, head("secret_events_total", "counter"), "event", c.secrets)
	labelled(w, head("approvals_total", "counter"), "outcome", c.approvals)
	labelled(w, head("bytes_total", "counter"), "direction", map[string]uint64{"up": c.bytes[0], "down": c.bytes[1]})
	labelled(w, head("policy_swaps_total", "counter"), "outcome", map[string]uint64{"done": c.swaps[0], "refused": c.swaps[1]})
	fmt.Fprintf(w, "%s %d\n", head("policy_generation", "gauge"), c.generation)
	fmt.Fprintf(w, "%s %d\n", head("record_failures_total", "counter"), c.failures)
	n = head("flow_setup_seconds", "histogram")
	for _, route := range slices.Sorted(maps.Keys(c.setup)) {
		h := c.setup[route]
		for i, b := range bounds {
			fmt.Fprintf(w, "%s_bucket{route=%q,le=\"%g\"} %d\n", n, route, float64(b)/1000, h.parts[i])
		}
		fmt.Fprintf(w, "%s_bucket{route=%q,le=\"+Inf\"} %d\n", n, route, h.count)
		fmt.Fprintf(w, "%s_sum{route=%q} %g\n", n, route, float64(h.sum)/1000)
		fmt.Fprintf(w, "%s_count{route=%q} %d\n", n, route, h.count)
	}
}

func labelled[N int64 | uint64](w io.Writer, name, label string, values map[string]N) {
	for _, word := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(w, "%s{%s=%q} %d\n", name, label, word, values[word])
	}
}

// ServeHTTP answers GET /metrics.
func (c *Counts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/metrics":
		w.WriteHeader(http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
	default:
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		c.Write(w)
	}
}
