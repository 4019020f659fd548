package ending

import (
	"errors"
	"testing"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/profile"
)

func TestJudge(t *testing.T) {
	bounded, faults := profile.ParseAt("p.yaml", profile.Place{Dir: "/"}, []byte("version: v1\nbudget: {memory: 1GiB}\n"))
	if faults != nil {
		t.Fatal(faults)
	}
	killed := cell.Result{ExitCode: 137, Usage: cell.Usage{OOMKills: 1, MemoryPeak: 1 << 30}}
	for name, c := range map[string]struct {
		p      *profile.Profile
		result cell.Result
		cause  cells.Cause
		code   int
		word   string
	}{
		"its own":         {bounded, cell.Result{ExitCode: 7}, cells.Cause{}, 7, "exit"},
		"124 of its own":  {bounded, cell.Result{ExitCode: 124}, cells.Cause{}, 124, "exit"},
		"wall":            {bounded, cell.Result{ExitCode: 137}, cells.Cause{Word: "budget", Budget: "wall"}, Budget, "budget: wall"},
		"memory":          {bounded, killed, cells.Cause{}, Budget, "budget: memory"},
		"the host's":      {&profile.Profile{}, killed, cells.Cause{}, 137, "exit"},
		"a kill beside":   {bounded, cell.Result{ExitCode: 137}, cells.Cause{}, 137, "exit"},
		"not found":       {bounded, cell.Result{ExitCode: NotFound, Failed: errors.New("no file")}, cells.Cause{}, NotFound, "exit"},
		"the cell's":      {bounded, cell.Result{ExitCode: Failed, Failed: errors.New("no warden")}, cells.Cause{}, Failed, "failed: no warden"},
		"ours":            {bounded, cell.Result{ExitCode: 137}, cells.Cause{Word: "failed", Detail: "no count"}, Failed, "failed: no count"},
		"its box died":    {bounded, cell.Result{ExitCode: 0}, cells.Cause{Word: "boundary-died"}, Failed, "boundary-died"},
		"an operator":     {bounded, cell.Result{ExitCode: 143}, cells.Cause{Word: "stop"}, 143, "stop"},
		"budget, then it": {bounded, cell.Result{ExitCode: 0}, cells.Cause{Word: "budget", Budget: "disk"}, Budget, "budget: disk"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, cause := Judge(c.p, c.result, c.cause); code != c.code || cause.String() != c.word {
				t.Errorf("%d %q, want %d %q", code, cause, c.code, c.word)
			}
		})
	}
}

// A limit of processes ends nobody: what its refusals did to the agent is in no status,
// so that it is named beside the agent's own end, and beside no end that has a cause.
func TestRefusedProcessesAreNamed(t *testing.T) {
	p, faults := profile.ParseAt("p.yaml", profile.Place{Dir: "/"}, []byte("version: v1\nbudget: {pids: 40}\n"))
	if faults != nil {
		t.Fatal(faults)
	}
	refused := cell.Result{ExitCode: 1, Usage: cell.Usage{Unforked: 3}}
	code, cause := Judge(p, refused, cells.Cause{})
	if want := "budget.pids 40 was reached: new processes or threads were refused (3)"; code != 1 || cause.String() != "exit" || cause.Detail != want {
		t.Errorf("%d %q %q, want %q", code, cause, cause.Detail, want)
	}
	if _, cause := Judge(p, refused, cells.Cause{Word: "boundary-died", Detail: "its box ended"}); cause.Detail != "its box ended" {
		t.Errorf("%q", cause.Detail)
	}
	for what, cause := range map[string]func() cells.Cause{
		"nothing was refused": func() cells.Cause { _, c := Judge(p, cell.Result{ExitCode: 1}, cells.Cause{}); return c },
		"it has no limit":     func() cells.Cause { _, c := Judge(&profile.Profile{}, refused, cells.Cause{}); return c },
	} {
		if c := cause(); c.Detail != "" {
			t.Errorf("%s: %q", what, c.Detail)
		}
	}
}

// What the ledger has of an end says why, as the record did.
func TestCauseComesBackFromTheEntry(t *testing.T) {
	for code, cause := range map[int]cells.Cause{
		0:      {Word: "exit"},
		143:    {Word: "stop", Detail: "skepd was stopped"},
		Budget: {Word: "budget", Budget: "memory", Limit: 1 << 30, Peak: 1 << 30},
		Failed: {Word: "failed", Detail: "skep-worker died"},
	} {
		e := Entry(code, cause, -time.Second)
		got := CauseOf(e)
		if got.String() != cause.String() || got.Detail != cause.Detail || int(e.Exit) != code || e.Ms != 0 {
			t.Errorf("%v came back as %v, with status %d after %d ms", cause, got, e.Exit, e.Ms)
		}
	}
	if e := Entry(137, cells.Cause{Word: "exit"}, 0); e.Signal != 9 {
		t.Errorf("signal %d", e.Signal)
	}
}
