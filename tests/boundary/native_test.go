package boundary

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"skep.dev/skep/internal/testlab"
)

const (
	public4 = "93.184.216.34"
	public6 = "2606:2800:220:1::34"
)

// TestBG1BG3InACell: a connect by name arrives as that name, one by literal as a
// literal, in both families; large flows and half-closed ones are exact (BG-17).
func TestBG1BG3InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("four.test", public4)
		lab.Host("six.test", public6)
		lab.Echo(public4 + ":7080")
		lab.Echo("[" + public6 + "]:7080")
		h := open(t, lab, "net: [{name: four.test, ports: [7080], id: by-name}, {name: six.test, ports: [7080]}, {ip: "+public4+", ports: [7080], id: by-literal}, {cidr: \"2606:2800::/32\", ports: [7080]}]\n")
		tries := []attempt{
			{How: "tcp", At: "four.test:7080"}, {How: "tcp", At: "six.test:7080"}, {How: "tcp", At: public4 + ":7080"}, {How: "tcp", At: "[" + public6 + "]:7080"},
		}
		for _, r := range h.try(tries...) {
			if r.Err != "" {
				t.Errorf("%+v", r)
			}
		}
		record := h.record()
		for _, want := range []struct{ destination, address, rule, bytes string }{
			{"four.test:7080", public4 + ":7080", "by-name", "5"}, {"six.test:7080", "[" + public6 + "]:7080", "", "5"},
			{public4 + ":7080", public4 + ":7080", "by-literal", "5"}, {"[" + public6 + "]:7080", "[" + public6 + "]:7080", "", "5"},
		} {
			if !slices.ContainsFunc(record, func(e entry) bool {
				return e.Kind == "flow.outcome" && e.destination() == want.destination && e.Body["address"] == want.address && (want.rule == "" || e.Body["rule"] == want.rule) &&
					e.Body["bytes_up"] == want.bytes && e.Body["bytes_down"] == want.bytes
			}) {
				t.Errorf("the record lacks %+v", want)
			}
		}
		if t.Failed() {
			for _, e := range record {
				t.Log(e, e.Body)
			}
		}
	})
}

// TestBG2BG4BG5BG10InACell: a denied name or literal is ECONNREFUSED within the published
// bound, by whatever way and whatever proxy variables say; nothing leaves.
func TestBG2BG4BG5BG10InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("denied.test", public4)
		for _, at := range []string{public4 + ":7080", "[" + public6 + "]:7080", "100.99.1.2:7080", "8.8.8.8:7080"} {
			lab.Echo(at)
		}
		h := open(t, lab, "net: [{name: ok.test, ports: [7080]}]\n")
		h.Env = append(h.Env, "HTTP_PROXY=http://8.8.8.8:7080", "ALL_PROXY=socks5://8.8.8.8:7080")
		// The published bound, and one for the worst of nine, which may wait for a processor
		// in each of the programs that take part on a busy machine: well below the second after
		// which a kernel that had no answer would try again (B18).
		const bound, worst = 50, 900 // milliseconds
		for _, at := range []string{"denied.test:7080", public4 + ":7080", "[" + public6 + "]:7080", "100.99.1.2:7080"} {
			tries := slices.Repeat([]attempt{{How: "tcp", At: at}}, 9)
			results := h.try(tries...)
			slices.SortFunc(results, func(a, b result) int { return int(a.Millis - b.Millis) })
			for _, r := range results {
				if r.Err != "ECONNREFUSED" {
					t.Errorf("%+v", r)
				}
			}
			if median := results[len(results)/2].Millis; median > bound {
				t.Errorf("%s is refused after %d ms, published are %d", at, median, bound)
			}
			if last := results[len(results)-1].Millis; last > worst {
				t.Errorf("%s is refused after %d ms at worst, nothing may be silent for longer than %d", at, last, worst)
			}
			reason := "ip-not-on-allowlist"
			if at == "denied.test:7080" {
				reason = "not-on-allowlist"
			}
			h.refused(h.record(), at, reason)
		}
		for _, r := range h.try(attempt{How: "raw"}, attempt{How: "raw6"}, attempt{How: "packet"}) {
			if r.Err == "" {
				t.Errorf("an agent may open a %s socket", r.How)
			}
		}
		if got := h.arrived(0); len(got) != 0 || lab.Asked("denied.test", "A") != 0 {
			t.Errorf("what arrived: %v, questions %v", got, lab.Queries())
		}
	})
}

// TestBG12InACell: whatever an agent does in a burst, the counts in the ledger add up.
func TestBG12InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		const n = 10000
		h := open(t, lab, "")
		if r := h.try(attempt{How: "burst", At: "1.2.3.4:7080", N: n})[0]; r.Got != fmt.Sprint(n) {
			t.Errorf("%+v", r)
		}
		sum := 0
		for _, e := range h.record() {
			count, err := strconv.Atoi(fmt.Sprint(e.Body["count"]))
			if err != nil || e.Kind != "flow.denied" {
				t.Errorf("%v", e)
			}
			sum += count
		}
		if sum != n {
			t.Errorf("%d refusals are recorded, there were %d", sum, n)
		}
	})
}

// TestBG13BG16InACell: the cell's loopback is the cell's own; the boundary's listeners on
// it take no flow that was not redirected to them.
func TestBG13BG16InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Echo("127.0.0.1:7080")
		lab.Echo("[::1]:7080")
		h := open(t, lab, "net: [{ip: 127.0.0.1, ports: [7080]}]\n")
		r := h.try(attempt{How: "own servers"}, attempt{How: "tcp", At: "127.0.0.1:7080"}, attempt{How: "tcp", At: "[::1]:7080"},
			attempt{How: "tcp", At: "127.0.0.1:65001"}, attempt{How: "tcp", At: "[::1]:65001"})
		if r[0].Err != "" {
			t.Errorf("the cell's own servers: %+v", r[0])
		}
		for _, r := range r[1:] {
			if r.reached() {
				t.Errorf("%+v", r)
			}
		}
		if got := h.arrived(0); len(got) != 0 {
			t.Errorf("what arrived: %v", got)
		}
		n := 0
		for _, e := range h.record() {
			if e.Body["reason"] == "no-original-destination" {
				n++
			}
		}
		if n != 2 {
			t.Errorf("%d connects to the listeners are recorded, want 2", n)
		}
	})
}

// TestBG14BG24NamespaceIsNotTheAgents: an agent changes no rule, route, address or device
// of its network namespace, opens no socket beside the boundary, and is governed the
// same after it tried.
func TestBG14BG24NamespaceIsNotTheAgents(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ok.test", public4)
		lab.Echo(public4 + ":7080")
		lab.Echo("8.8.8.8:7080")
		h := open(t, lab, "net: [{name: ok.test, ports: [7080]}]\n")
		var tries []attempt
		for how := range kernel() {
			tries = append(tries, attempt{How: how})
		}
		after := []attempt{{How: "tcp", At: "ok.test:7080"}, {How: "tcp", At: "8.8.8.8:7080"}, {How: "udp", At: "8.8.8.8:7080"}}
		results := h.try(append(tries, after...)...)
		for _, r := range results[:len(tries)] {
			if r.Err == "" {
				t.Errorf("the kernel let an agent: %s", r.How)
			}
		}
		r := results[len(tries):]
		if r[0].Got != "hello" || r[1].Err != "ECONNREFUSED" || r[2].reached() {
			t.Errorf("afterwards: %+v", r)
		}
		if got := h.arrived(0); !slices.Equal(got, []string{public4 + ":7080"}) || len(lab.Datagrams()) != 0 {
			t.Errorf("what arrived: %v %v", got, lab.Datagrams())
		}
	})
}

// TestFullInACell: one flow more than a cell may have open is refused by the kernel, as
// busy, and those that are open go on; afterwards there is room again (B13, row 3).
func TestFullInACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Echo(public4 + ":7080")
		h := open(t, lab, "net: [{ip: "+public4+", ports: [7080]}]\n") // names have a rate of their own
		const most = 1024
		r := h.try(attempt{How: "hold", At: public4 + ":7080", N: most + 100}, attempt{How: "tcp", At: public4 + ":7080"})
		if n, err := strconv.Atoi(r[0].Got); err != nil || n != most || r[0].Err != "ECONNREFUSED" {
			t.Errorf("%+v", r[0])
		}
		if r[1].Err != "" && r[1].Err != "ECONNREFUSED" { // the box may not have seen them end yet
			t.Errorf("%+v", r[1])
		}
		h.refused(h.record(), public4+":7080", "busy")
	})
}
