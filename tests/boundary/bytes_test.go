package boundary

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/journey"
)

const netBudget = 5 << 20

// bounded is a host with an echo and a budget of bytes for each cell.
func bounded(t *testing.T, lab *testlab.Lab) *host {
	lab.Host("echo.test", public4)
	lab.Echo(public4 + ":7080")
	return open(t, lab, "net: [{name: echo.test, ports: [7080]}]\nbudget: {net: "+strconv.Itoa(netBudget>>20)+"MiB}\n")
}

func (e entry) number(field string) int64 {
	n, _ := strconv.ParseInt(strings.Trim(fmt.Sprint(e.Body[field]), "\""), 10, 64)
	return n
}

// spent is what the ledger says that a cell has spent, each lease without an end as a
// whole; carried is what its flows moved.
func spent(record []entry) (spent, carried int64, open int) {
	held := map[any]int64{}
	for _, e := range record {
		switch e.Kind {
		case "budget.held":
			held[e.Body["hold"]] = e.number("amount")
		case "budget.settled":
			delete(held, e.Body["hold"])
			spent += e.number("amount")
		case "flow.outcome":
			carried += e.number("bytes_up") + e.number("bytes_down")
		}
	}
	for _, n := range held {
		spent += n
	}
	return spent, carried, len(held)
}

// TestBudgetNetEndsFlows: bytes count while they flow. One kept connection, and many in
// parallel, up and down, end at the budget to the byte, and the cell's end says so (R9a).
func TestBudgetNetEndsFlows(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		h := bounded(t, lab)
		for what, n := range map[string]int{"one flow": 1, "many flows": 32} {
			r := h.Try(h.command([]attempt{{How: "bulks", At: "echo.test:7080", Say: strconv.Itoa(n), N: netBudget * 2}})...)
			record := h.all()
			got, carried, left := spent(record)
			if r.Code != 124 {
				t.Errorf("%s: ended with %d, %s", what, r.Code, r.Err)
			}
			if got != carried || got > netBudget || got < netBudget-1<<20 || left != 0 {
				t.Errorf("%s: %d spent and %d carried of %d, %d leases open", what, got, carried, netBudget, left)
			}
			ended, warned, exhausted := 0, 0, 0
			for _, e := range record {
				switch {
				case e.Kind == "flow.outcome" && e.Body["reason"] == "budget-exhausted":
					ended++
				case e.Kind == "budget.warned":
					warned++
				case e.Kind == "budget.exhausted":
					exhausted++
				case e.Kind == "cell.stopped":
					if e.Body["cause"] != "budget" || e.Body["limit"] != "net: 5MiB" || e.Body["peak"] == "" {
						t.Errorf("%s: the end of the cell is %v", what, e.Body)
					}
				}
			}
			if ended == 0 || warned != 1 || exhausted != 1 {
				t.Errorf("%s: %d flows ended for it, told %d and %d times", what, ended, warned, exhausted)
			}
		}
	})
}

// TestBudgetNetKeepsWhatIsUnused: a cell that stays below its budget has spent what it
// carried, and no more.
func TestBudgetNetKeepsWhatIsUnused(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		h := bounded(t, lab)
		if r := h.try(attempt{How: "bulk", At: "echo.test:7080", N: 100000})[0]; r.Err != "" {
			t.Errorf("%+v", r)
		}
		if got, carried, left := spent(h.all()); got != 200000 || carried != got || left != 0 {
			t.Errorf("%d spent, %d carried, %d leases open", got, carried, left)
		}
	})
}

// TestBudgetNetAfterKill: a box or a skepd that is killed while bytes flow leaves its
// leases as spent: never less than was carried, never more than the budget.
func TestBudgetNetAfterKill(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		programs := copies(t)
		t.Setenv("SKEP_BIN", programs)
		h := bounded(t, lab)
		for _, victim := range []string{"skep-box", "skepd"} {
			mark := len(lab.Connections())
			cmd := exec.Command(testlab.Built(t, "skep"), h.command([]attempt{{How: "drip", At: "echo.test:7080"}})...)
			cmd.Dir, cmd.Env = h.Tree, h.Env
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for end := time.Now().Add(time.Minute); len(lab.Connections()) == mark; <-tick.C {
				if time.Now().After(end) {
					t.Fatal("the cell does not connect")
				}
			}
			for range 40 { // bytes flow meanwhile
				<-tick.C
			}
			if n := kill(filepath.Join(programs, victim)); n == 0 {
				t.Errorf("there is no %s to kill", victim)
			}
			_ = cmd.Wait()
			h.Skep("ps", "--all") // another skepd finds what the first left
			record := h.all()
			got, carried, _ := spent(record)
			if got == 0 || got < carried || got > netBudget {
				t.Errorf("%s: %d spent, %d carried of %d", victim, got, carried, netBudget)
			}
			want := map[string]string{"skep-box": "boundary-died", "skepd": "daemon-died"}[victim]
			if last := record[len(record)-1]; last.Kind != "cell.stopped" || last.Body["cause"] != want {
				t.Errorf("%s: the cell ended with %s %v", victim, last.Kind, last.Body)
			}
		}
	})
}

// copies are the programs under another path, by which their processes are told apart.
func copies(t *testing.T) string {
	t.Helper()
	dir := journey.Directory(t)
	for _, name := range []string{"skep", "skepd", "skep-worker", "skep-warden", "skep-box", "skep-model"} {
		content, err := os.ReadFile(testlab.Built(t, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// kill ends every process of a program, which says its path in its arguments, or whose
// parent does.
func kill(program string) (killed int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, at := range stats {
		raw, err := os.ReadFile(at)
		begin, end := strings.IndexByte(string(raw), '('), strings.LastIndexByte(string(raw), ')')
		if err != nil || begin < 0 || end < begin || string(raw[begin+1:end]) != filepath.Base(program) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(at)))
		parent, _ := strconv.Atoi(strings.Fields(string(raw[end+1:]))[1])
		ours := strings.HasPrefix(said(pid), filepath.Dir(program)) || strings.HasPrefix(said(parent), filepath.Dir(program))
		if ours && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

func said(pid int) string {
	raw, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return string(raw)
}
