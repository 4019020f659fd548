package metrics

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"skep.dev/skep/internal/boundary/link"
)

func text(c *Counts) string {
	var b bytes.Buffer
	c.Write(&b)
	return b.String()
}

func TestCounts(t *testing.T) {
	c := &Counts{}
	open := map[string]int64{}
	flow := link.Record{Kind: "intent", Destination: "ok.test:443", Transport: "tcp", Direction: "out", Decision: "allow", Count: 1}
	for range 3 {
		c.Record(flow, open)
	}
	end := flow
	end.Kind, end.Address, end.SetupMillis, end.Bytes, end.Inner = "outcome", "192.0.2.1:443", 30, &link.Bytes{Up: 5, Down: 7}, &link.Inner{Protocol: "tls"}
	c.Record(end, open)
	end.Kind, end.Address, end.Reason, end.Bytes, end.Inner = "outcome", "", "dial-failed", nil, nil
	c.Record(end, open)
	c.Record(end, map[string]int64{}) // an end without a beginning
	for _, r := range []link.Record{
		{Destination: "no.test:443", Transport: "tcp", Reason: "not-on-allowlist", Count: 10}, {Destination: "*", Transport: "tcp", Reason: "busy", Count: 2},
		{Destination: "*", Transport: "tcp", Reason: "malformed-header", Count: 1}, {Destination: "mesh.skep.alt:80", Transport: "tcp", Reason: "not-on-allowlist", Count: 1},
		{Destination: "[::1]:53", Transport: "udp", Reason: "record-unavailable", Count: 1},
	} {
		r.Kind = "denied"
		c.Record(r, open)
	}
	c.Swap(true)
	c.Swap(false)
	c.Attached(4)
	c.Attached(3)
	c.Unwritten(6)
	got := text(c)
	for _, want := range []string{
		`flows_total{route="external",transport="tcp",outcome="allowed"} 1`, `flows_total{route="external",transport="tcp",outcome="unreachable"} 2`,
		`flows_total{route="external",transport="tcp",outcome="denied"} 10`, `flows_total{route="unresolved",transport="tcp",outcome="refused"} 3`,
		`flows_total{route="mesh-entrypoint",transport="tcp",outcome="denied"} 1`, `flows_total{route="external",transport="udp",outcome="error"} 1`,
		`flows_active{transport="tcp"} 1`, `refusals_total{reason="not-on-allowlist"} 11`, `refusals_total{reason="dial-failed"} 2`, `limit_hits_total{limit="busy"} 2`,
		`inner_checks_total{outcome="passed"} 1`, `bytes_total{direction="down"} 7`, `bytes_total{direction="up"} 5`, `policy_swaps_total{outcome="done"} 1`,
		`policy_swaps_total{outcome="refused"} 1`, "policy_generation 4", "record_failures_total 6", `flow_setup_seconds_bucket{route="external",le="0.025"} 0`,
		`flow_setup_seconds_bucket{route="external",le="0.1"} 1`, `flow_setup_seconds_sum{route="external"} 0.03`, `flow_setup_seconds_count{route="external"} 1`,
	} {
		if !strings.Contains(got, "\nskep_box_"+want+"\n") {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	c.Gone(open)
	if !strings.Contains(text(c), `flows_active{transport="tcp"} 0`) {
		t.Errorf("flows of a box that is gone are active")
	}
}

// BC-48, B200: whatever records say, the labels are of closed sets.
func TestLabelsAreClosed(t *testing.T) {
	c := &Counts{}
	c.Record(link.Record{Kind: "denied", Destination: "a.test:1", Reason: "not-on-allowlist", Transport: "tcp"}, map[string]int64{})
	c.Record(link.Record{Kind: "denied", Destination: "a.test:1", Reason: "hostile-0", Transport: "hostile-0"}, map[string]int64{})
	labels := regexp.MustCompile(`\{[^}]*\}`)
	before := labels.FindAllString(text(c), -1)
	for i := range 1000 {
		word := fmt.Sprintf("hostile-%d\"}\n", i)
		c.Record(link.Record{Kind: "denied", Destination: word + ".test:1", Reason: "not-on-allowlist", Transport: "tcp", Peer: word, Rule: word, Wire: word}, map[string]int64{})
		c.Record(link.Record{Kind: "denied", Destination: word, Reason: word, Transport: word, Direction: word}, map[string]int64{})
	}
	after := text(c)
	if now := labels.FindAllString(after, -1); len(now) != len(before) || strings.Contains(after, "hostile") {
		t.Errorf("%d label sets, then %d:\n%s", len(before), len(now), after)
	}
}

func TestServe(t *testing.T) {
	var none *Counts
	none.Record(link.Record{}, nil)
	none.Swap(true)
	none.Attached(1)
	none.Unwritten(1)
	none.Gone(nil)
	for path, want := range map[string]int{"GET /metrics": 200, "GET /": 404, "POST /metrics": 405, "GET /debug/pprof/": 404} {
		method, path, _ := strings.Cut(path, " ")
		w := httptest.NewRecorder()
		(&Counts{}).ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
		if w.Code != want || want == 200 && !strings.Contains(w.Body.String(), "skep_box_policy_generation 0") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
