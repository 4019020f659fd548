package attack

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/testlab"
)

// TestBudgetsHold: a cell that takes more processes, memory or shared memory than
// it was given gets none, and its end is an ordinary one (L13).
func TestBudgetsHold(t *testing.T) { testlab.Test(t, budgetsHold) }

func budgetsHold(t *testing.T, lab *testlab.Lab) {
	args := []string{"40", "64", "8"}
	for _, o := range (attack{technique: "limits", outside: args}).tryOutside(t) {
		if o.verdict != escaped {
			t.Errorf("%s is bounded outside, so it proves nothing: %s", o.name, o.why)
		}
	}
	s := install(t, lab)
	s.start()
	budget := "budget:\n  pids: 40\n  memory: 64MiB\n"
	profile := s.profile(budget)
	if _, complaint, status := s.try("run", "--yes", "--profile", profile, "--", "/bin/true"); status != 0 {
		t.Logf("memory cannot be bounded here: %s", complaint)
		args[1] = "0"
		profile = s.profile("budget:\n  pids: 40\n")
	}
	for _, i := range s.attack(profile, "limits", args...) {
		if i.verdict != held && i.name != "shared memory" { // its size is the daemon's choice, within the budget of memory
			t.Errorf("%s: %s", i.name, i.why)
		}
	}
	refusedProcesses(t, s)
}

// refusedProcesses: the agent is told by the kernel alone, its owner by Skep.
func refusedProcesses(t *testing.T, s *installation) {
	t.Helper()
	found, _, _ := s.try("doctor")
	if !regexp.MustCompile("process limit +held by a cgroup").MatchString(found) {
		t.Log("nothing counts refused processes here")
		return
	}
	_, told, _ := s.try("run", "--yes", "--profile", s.profile("budget:\n  pids: 40\n"), "--",
		"/bin/sh", "-c", "(for i in $(seq 60); do sleep 60 & done) 2>/dev/null; exit 3")
	listed, _, _ := s.try("ps", "-a")
	if !strings.Contains(told, "budget.pids 40 was reached: ") || !strings.Contains(listed, "exit 3, budget.pids") {
		t.Errorf("refused processes are not named:\n%s\n%s", told, listed)
	}
}

// TestSharedMemoryIsSized: /dev/shm holds what the cell was given, and no more.
func TestSharedMemoryIsSized(t *testing.T) {
	c := celltest.New(t)
	c.Spec.ShmSize = 4 << 20
	c.Spec.Limits = cell.Limits{Pids: 20}
	a := attack{technique: "limits", outside: []string{"20", "0", "4"}, inside: []string{"20", "0", "4"}}
	a.run(t, c)
}

// TestKilledInTheMiddle: an agent that dies in every way that it can leaves nothing
// running, and the warden says so.
func TestKilledInTheMiddle(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash on this host")
	}
	for name, script := range map[string]string{
		"by itself": "kill -9 $$", "with children that hold its output": "(trap '' TERM HUP; exec sleep 600) & (setsid sleep 600) & kill -9 $$",
		"while it writes": "yes | head -c 10000000 & kill -9 $$",
	} {
		t.Run(name, func(t *testing.T) {
			c := celltest.New(t, "/bin/bash", "-c", script)
			r, err := celltest.Driver(t).Start(context.Background(), c.Spec)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Spec.Stdio.Close()
			c.Output()
			<-r.Done()
			if got := r.Result(); got.ExitCode != 137 || got.Failed != nil {
				t.Errorf("result %+v, want 137", got)
			}
		})
	}
}
