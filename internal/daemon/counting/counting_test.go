package counting

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/connector/metrics"
	"skep.dev/skep/internal/ledger/kind"
)

type journal struct{ err error }

func (j journal) Append(string, kind.Body) error { return j.err }

func text(c *metrics.Counts) string {
	var b strings.Builder
	c.Write(&b)
	return b.String()
}

// B201: every family of a native cell, from records, the box's numbers and the journal; what
// was not written is not counted, and an ended cell leaves no gauge.
func TestFamilies(t *testing.T) {
	counts := &metrics.Counts{}
	c := &Cell{Counts: counts}
	flow := skepv1.FlowRecord{Kind: skepv1.FlowRecord_KIND_INTENT, Flow: "1", Wire: "native", Connection: "c", Transport: "tcp", Direction: "out", Destination: "a.test:443", Decision: "allow"}
	end := skepv1.FlowRecord{Kind: skepv1.FlowRecord_KIND_OUTCOME, Flow: "1", Wire: "native", Connection: "c", Transport: "tcp", Direction: "out", Destination: "a.test:443", Address: "192.0.2.1:443", Decision: "allow", InnerProtocol: "tls", BytesUp: 3, BytesDown: 4, SetupMilliseconds: 7}
	early := func(k skepv1.FlowRecord_Kind, to, reason string, n uint64) *skepv1.FlowRecord {
		return &skepv1.FlowRecord{Kind: k, Wire: "native", Transport: "tcp", Direction: "out", Destination: to, Reason: reason, Count: n}
	}
	c.Records([]*skepv1.FlowRecord{&flow, &end, &flow,
		early(skepv1.FlowRecord_KIND_DENIED, "b.test:443", "not-on-allowlist", 2), early(skepv1.FlowRecord_KIND_DENIED, "b.test:443", "busy", 1),
		early(skepv1.FlowRecord_KIND_DENIED, "*", "not-on-allowlist", 9), early(skepv1.FlowRecord_KIND_HELD, "b.test:443", "approval-needed", 1)})
	c.Numbers(&skepv1.BoxNumbers{DnsAnswered: 5, DnsFailed: 1, Names4: 3, Names6: 2})
	c.Numbers(&skepv1.BoxNumbers{DnsAnswered: 6, DnsFailed: 1, Names4: 4, Names6: 2})
	c.Numbers(&skepv1.BoxNumbers{DnsAnswered: 1, Names4: 4, Names6: 2}) // another box
	c.Secret("")
	c.Secret("secret-misplaced")
	j := Journal{Journal: journal{}, Counts: counts}
	for _, b := range []kind.Body{&kind.ApprovalOpened{}, &kind.ApprovalDecided{Decision: "allow"}, &kind.ApprovalDecided{Decision: "block", Reason: "expired"}, &kind.ApprovalDecided{Decision: "block"}, &kind.Note{}} {
		if err := j.Append("c", b); err != nil {
			t.Error(err)
		}
	}
	if err := (Journal{Journal: journal{io.ErrShortWrite}, Counts: counts}).Append("c", &kind.ApprovalOpened{}); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
	got := text(counts)
	for _, want := range []string{
		`flows_active{transport="tcp"} 1`, `bytes_total{direction="down"} 4`, `inner_checks_total{outcome="passed"} 1`, `flow_setup_seconds_sum{route="external"} 0.007`,
		`gate_events_total{kind="refused"} 2`, `gate_events_total{kind="shut"} 1`, `gate_events_total{kind="counted"} 9`, `gate_events_total{kind="held"} 1`,
		`dns_queries_total{outcome="answered"} 7`, `dns_queries_total{outcome="failed"} 1`, `dns_names{family="ipv4"} 4`, `dns_names{family="ipv6"} 2`,
		`secret_events_total{event="used"} 1`, `secret_events_total{event="refused"} 1`,
		`approvals_total{outcome="opened"} 1`, `approvals_total{outcome="granted"} 1`, `approvals_total{outcome="expired"} 1`, `approvals_total{outcome="denied"} 1`,
		`limit_hits_total{limit="busy"} 1`,
	} {
		if !strings.Contains(got, "skep_box_"+want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	c.End()
	if got := text(counts); !strings.Contains(got, `flows_active{transport="tcp"} 0`) || !strings.Contains(got, `dns_names{family="ipv4"} 0`) {
		t.Error(got)
	}
	var none Cell
	none.Records([]*skepv1.FlowRecord{&flow})
	none.Numbers(&skepv1.BoxNumbers{})
	none.Secret("")
	none.End()
}

// B200: the socket is in a directory that is ours alone, and takes the place of nobody's.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m", "s")
	counts := &metrics.Counts{}
	stop, err := Serve(path, counts)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v %v", info, err)
	}
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	a, err := c.Get("http://metrics/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(a.Body); !strings.Contains(string(body), "skep_box_record_failures_total 0") {
		t.Errorf("%s", body)
	}
	_ = a.Body.Close()
	if _, err := Serve(path, counts); err == nil || !strings.Contains(err.Error(), "another program serves") {
		t.Error(err)
	}
	stop()
	open := filepath.Join(dir, "open")
	plain := filepath.Join(dir, "m", "plain")
	if err := errors.Join(os.Mkdir(open, 0o755), os.Chmod(open, 0o755), os.WriteFile(plain, nil, 0o600)); err != nil { //nolint:gosec // it is to be refused
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(open, "s"): "alone", plain: "no socket"} {
		if _, err := Serve(path, counts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if stop, err = Serve(path, counts); err != nil {
		t.Fatal(err)
	}
	stop()
}
