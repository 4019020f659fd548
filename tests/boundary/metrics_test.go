package boundary

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// TestBC48MetricsOfCells: what native cells do is counted where the operator says, by labels
// that no cell chooses, and a cell that is given the directory of the numbers does not start.
func TestBC48MetricsOfCells(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ok.test", public4)
		lab.Echo(public4 + ":7080")
		h := open(t, lab, "net: [{name: ok.test, ports: [7080]}]\n")
		dir := filepath.Join(h.Dir, "run", "metrics") // of skepd's own user
		h.Config("metrics: " + dir + "/s\n")
		client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", dir+"/s")
		}}}
		read := func() (sets []string, text string) {
			t.Helper()
			a, err := client.Get("http://skepd/metrics")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = a.Body.Close() }()
			all, _ := io.ReadAll(a.Body)
			return regexp.MustCompile(`\{[^}]*\}`).FindAllString(string(all), -1), string(all)
		}
		h.try(attempt{How: "tcp", At: "ok.test:7080"}, attempt{How: "tcp", At: "hostile.test:7080"})
		before, text := read()
		for _, want := range []string{`flows_total{route="external",transport="tcp",outcome="allowed"} 1`, `dns_queries_total{outcome="answered"}`, `gate_events_total{kind="refused"}`, `refusals_total{reason="not-on-allowlist"}`, `dns_names{family="ipv4"} 0`} {
			if !strings.Contains(text, "skep_box_"+want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		var many []attempt
		for i := range 100 {
			many = append(many, attempt{How: "tcp", At: fmt.Sprintf("hostile-%d.test:%d", i, 1000+i)})
		}
		h.try(many...)
		after, text := read()
		// What the kernel counted and did not log may come in two sets of its own.
		if len(after) > len(before)+2 || strings.Contains(text, "hostile") {
			t.Errorf("label sets %v, then %v", before, after)
		}
		h.paths += "  - {path: " + dir + ", rights: ro}\n"
		h.Rules("")
		if r := h.Try(h.command(nil)...); r.Code == 0 {
			t.Error("a cell is given the socket of the numbers")
		}
	})
}
