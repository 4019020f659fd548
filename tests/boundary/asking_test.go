package boundary

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
)

// card is a line of `skep approve --json`.
type card struct {
	ID, Hash, Host, State string
	Port                  int
	Count                 json.Number
}

// asked waits for an open card about a host.
func (h *host) asked(name string) card {
	h.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); ; {
		for line := range strings.Lines(h.Skep("approve", "--json")) {
			var c card
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				h.t.Fatalf("%q: %v", line, err)
			}
			if c.Host == name && c.State == "pending" {
				return c
			}
		}
		select {
		case <-tick.C:
		case <-late:
			h.t.Fatalf("no question about %s", name)
		}
	}
}

// TestBC46AskInACell: an ask refuses at once and opens one card; what a person says to
// it holds for one flow, for the cell, or for every run of the profile, and no further.
func TestBC46AskInACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		for _, name := range []string{"once.test", "cell.test", "always.test", "no.test", "never.test"} {
			lab.Host(name, public4)
		}
		lab.Echo(public4 + ":7080")
		lab.Echo(public4 + ":7081")
		h := open(t, lab, "net:\n  - {name: once.test, ports: [7080], ask: true}\n  - {name: cell.test, ports: [7080], ask: true}\nunlisted: ask\n")
		at := func(how, to string, n int) attempt { return attempt{How: how, At: to, Say: "x", N: n} }
		done := make(chan []result, 1)
		go func() {
			done <- h.try(
				at("tcp", "once.test:7080", 0), at("knock", "once.test:7080", 200), at("tcp", "once.test:7080", 0),
				at("knock", "cell.test:7080", 200), at("tcp", "cell.test:7080", 0), at("tcp", "cell.test:7080", 0), at("tcp", "cell.test:7081", 0),
				at("knock", "always.test:7080", 200), at("knock", "no.test:7080", 40),
				at("burst", "never.test:7080", 5), at("tcp", "x.alt:80", 0),
			)
		}()
		answer := func(name string, how ...string) {
			c := h.asked(name)
			if r := h.Try("approve", c.ID[:6], strings.Repeat("0", 64)); r.Code == 0 {
				t.Errorf("%s was approved by another hash", name)
			}
			h.Skep(append([]string{"approve", c.ID[:6], c.Hash[:12]}, how...)...)
		}
		answer("once.test")
		answer("cell.test", "--cell")
		answer("always.test", "--always")
		answer("no.test", "--deny")
		r := <-done
		for i, want := range []string{"ECONNREFUSED", "", "ECONNREFUSED", "", "", "", "ECONNREFUSED", "", "ECONNREFUSED", "", "ECONNREFUSED"} {
			if r[i].Err != want {
				t.Errorf("%d: %+v, want %q", i, r[i], want)
			}
		}
		if r[9].Got != "5" {
			t.Errorf("%+v", r[9])
		}
		record := h.record()
		h.refused(record, "once.test:7080", "approval-needed")
		h.refused(record, "cell.test:7081", "approval-needed")
		h.refused(record, "no.test:7080", "approval-denied")
		h.refused(record, "x.alt:80", "not-on-allowlist")
		var opened, withdrawn int
		for _, e := range h.all() {
			switch {
			case e.Kind == "approval.opened":
				opened++
			case e.Kind == "approval.decided" && e.Body["reason"] == "withdrawn":
				withdrawn++
			}
		}
		// once.test twice, cell.test by two ports, always, no, never.
		if opened != 7 || withdrawn != 3 {
			t.Errorf("%d cards were opened, %d were withdrawn", opened, withdrawn)
		}
		if out := h.Skep("approve"); strings.Count(out, "\n") != 1 {
			t.Errorf("cards outlive their cell:\n%s", out)
		}

		// Always holds for the next run of the profile, until it is taken back.
		if r := h.try(at("tcp", "always.test:7080", 0), at("tcp", "always.test:7081", 0)); r[0].Err != "" || r[1].Err != "ECONNREFUSED" {
			t.Errorf("%+v", r)
		}
		var standing struct{ ID, Host string }
		if err := json.Unmarshal([]byte(h.Skep("approve", "--standing", "--json")), &standing); err != nil || standing.Host != "always.test" {
			t.Fatalf("%+v, %v", standing, err)
		}
		h.Skep("approve", "--revoke", standing.ID)
		if r := h.try(at("tcp", "always.test:7080", 0)); r[0].Err != "ECONNREFUSED" {
			t.Errorf("%+v", r)
		}
	})
}

// TestB161RevokedFlowEnds: what was approved for good is taken back under an open flow.
func TestB161RevokedFlowEnds(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("a.test", public4)
		lab.Host("b.test", public4)
		lab.Echo(public4 + ":7080")
		h := open(t, lab, "net: [{name: b.test, ports: [7080]}]\nunlisted: ask\n")
		done := make(chan []result, 1)
		go func() {
			done <- h.try(attempt{How: "knock", At: "a.test:7080", N: 200}, attempt{How: "until closed", At: "a.test:7080"}, attempt{How: "tcp", At: "b.test:7080", Say: "x"})
		}()
		c := h.asked("a.test")
		h.Skep("approve", c.ID, c.Hash, "--always")
		lab.Await("a flow", func() bool { return len(lab.Reached(public4+":7080")) > 1 })
		h.Skep("approve", "--revoke", c.ID)
		if r := <-done; r[0].Err != "" || r[1].Err != "" || r[1].Got != "closed" || r[2].Err != "" {
			t.Errorf("%+v", r)
		}
		h.refused(h.record(), "a.test:7080", "revoked")
	})
}

// TestBC49DeskInACell: an agent reads why it was refused, asks its owner by itself, and
// gets through after a yes; another gets a no, and a cell without the desk finds none.
func TestBC49DeskInACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("a.test", public4)
		lab.Host("b.test", public4)
		lab.Echo(public4 + ":7080")
		h := open(t, lab, "")
		const at = "policy.skep.alt"
		done := make(chan []result, 1)
		go func() {
			done <- h.try(
				attempt{How: "tcp", At: "a.test:7080", Say: "x"}, attempt{How: "fetch", At: at + "/denials"},
				attempt{How: "draft", At: at, Say: `{"name": "a.test", "port": 7080, "why": "to fetch <the> schema"}`}, attempt{How: "tcp", At: "a.test:7080", Say: "x"},
				attempt{How: "draft", At: at, Say: `{"name": "b.test", "port": 7080}`}, attempt{How: "tcp", At: "b.test:7080", Say: "x"},
				attempt{How: "draft", At: at, Say: `{"name": "*.test"}`},
			)
		}()
		c := h.asked("a.test")
		if out := h.Skep("approve", c.ID); !strings.Contains(out, `the agent says: "to fetch <the> schema"`) || !strings.Contains(out, c.Hash) {
			t.Errorf("the card is\n%s", out)
		}
		h.Skep("approve", c.ID, c.Hash[:12], "--cell")
		c = h.asked("b.test")
		h.Skep("approve", c.ID, c.Hash[:12], "--deny")
		r := <-done
		if !strings.Contains(r[1].Got, `"destination":"a.test:7080"`) || !strings.Contains(r[1].Got, "- {name: a.test, ports: [7080]}") {
			t.Errorf("%s", r[1].Got)
		}
		if r[2].Got != "granted" || r[3].Err != "" || r[4].Got != "denied" || r[5].Err != "ECONNREFUSED" || r[6].Got != "400" {
			t.Errorf("%+v", r[2:])
		}
		h.refused(h.record(), "b.test:7080", "not-on-allowlist") // a no to a draft changes nothing

		h.Rules("policy_endpoint: off\n")
		if r := h.try(attempt{How: "tcp", At: at + ":80"}, attempt{How: "tcp", At: "other.alt:80"}); r[0].Err != "ECONNREFUSED" || r[1].Err != r[0].Err {
			t.Errorf("%+v", r)
		}
	})
}

// TestB142QuestionsOutliveSkepd: cards and what was said to them are there after skepd,
// its worker and the box were replaced.
func TestB142QuestionsOutliveSkepd(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		for _, name := range []string{"a.test", "b.test", "once.test"} {
			lab.Host(name, public4)
		}
		lab.Echo(public4 + ":7080")
		h := open(t, lab, "unlisted: ask\n")
		done := make(chan []result, 1)
		go func() {
			done <- h.try(attempt{How: "knock", At: "once.test:7080", N: 200}, attempt{How: "knock", At: "a.test:7080", N: 200}, attempt{How: "tcp", At: "b.test:7080", Say: "x"},
				attempt{How: "knock", At: "b.test:7080", N: 400}, attempt{How: "tcp", At: "a.test:7080", Say: "x"}, attempt{How: "tcp", At: "once.test:7080", Say: "x"}, attempt{How: "fetch", At: "policy.skep.alt/denials"})
		}()
		for _, name := range []string{"once.test", "a.test"} {
			c := h.asked(name)
			h.Skep("approve", c.ID, c.Hash, map[string]string{"a.test": "--cell", "once.test": "--once"}[name])
		}
		c := h.asked("b.test")
		h.Skep("upgrade")
		if again := h.asked("b.test"); again.ID != c.ID || again.Hash != c.Hash {
			t.Errorf("%+v was %+v", again, c)
		}
		h.Skep("approve", c.ID, c.Hash, "--cell")
		r := <-done
		// What it was refused before is still told: a.test was, and then let through.
		if said := r[len(r)-1].Got; !strings.Contains(said, `"destination":"a.test:7080"`) {
			t.Errorf("after the upgrade the cell is told %s", said)
		}
		for i, want := range []string{"", "", "ECONNREFUSED", "", "", "ECONNREFUSED"} {
			if r[i].Err != want {
				t.Errorf("%d: %+v, want %q", i, r[i], want)
			}
		}
	})
}
