package boundary

import (
	"fmt"
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// TestBG22InACell: a cell that is stopped in the middle of a transfer has its flow ended and
// recorded before its own end is, and another cell's goes on.
func TestBG22InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("a.test", public4)
		lab.Host("b.test", public6)
		lab.Echo(public4 + ":7080")
		lab.Echo("[" + public6 + "]:7080")
		h := open(t, lab, "net: [{name: a.test, ports: [7080]}, {name: b.test, ports: [7080]}]\n")
		begin := func(at string) string {
			args := h.command([]attempt{{How: "until closed", At: at}})
			return strings.TrimSpace(h.Skep(append([]string{"run", "--detach"}, args[1:]...)...))
		}
		a, b := begin("a.test:7080"), begin("b.test:7080")
		lab.Await("both flows", func() bool {
			return len(lab.Reached(public4+":7080")) == 1 && len(lab.Reached("["+public6+"]:7080")) == 1
		})
		h.Skep("stop", a)
		var ended, stopped int
		for i, e := range h.of(a) {
			switch {
			case e.Kind == "flow.outcome" && e.destination() == "a.test:7080":
				ended = i + 1
			case e.Kind == "cell.stopped":
				stopped = i + 1
			}
		}
		if ended == 0 || stopped < ended {
			t.Errorf("the flow's end is entry %d, the cell's %d", ended, stopped)
		}
		for _, e := range h.of(b) {
			if e.Kind == "flow.outcome" || e.Kind == "cell.stopped" {
				t.Errorf("the other cell: %v", e)
			}
		}
		h.Skep("stop", b)
	})
}

// of is what the ledger says of a cell that may still run.
func (h *host) of(cell string) []entry {
	h.t.Helper()
	all, err := entries(h.Skep("ledger", "show", cell, "--json"))
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// TestBU11InACell: datagrams to a name that a rule has for TCP only fail at once, as QUIC's
// do, and TCP to it works.
func TestBU11InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ok.test", public4)
		lab.Echo(public4 + ":443")
		lab.UDPEcho(public4 + ":443")
		h := open(t, lab, "net: [{name: ok.test, ports: [443], inner: off}, {name: udp.test, ports: [443], udp: true}]\n")
		r := h.try(attempt{How: "udp", At: "ok.test:443"}, attempt{How: "tcp", At: "ok.test:443"})
		if got := fmt.Sprint(r[0].Err, " ", r[1].Got); got != "EPERM hello" && got != "ECONNREFUSED hello" || r[0].Millis > 1000 {
			t.Errorf("%+v", r)
		}
		h.refused(h.record(), "ok.test:443", "transport-not-allowed")
		if d := lab.Datagrams(); len(d) > 0 {
			t.Errorf("%v arrived", d)
		}
	})
}
