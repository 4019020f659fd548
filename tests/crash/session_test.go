package crash

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNextStartFromAnotherGroup: a login has control groups of its own, so that the
// skepd after a crash stands in others than the one before. What the first left in its
// groups goes all the same.
func TestNextStartFromAnotherGroup(t *testing.T) {
	groups := ownGroups(t)
	r := set(t)
	// The first skep, and all that it starts, is in a group of the test's own.
	enter := "for g in " + strings.Join(groups, " ") + `; do echo $$ > "$g/cgroup.procs"; done; exec "$@"`
	s := r.command("/bin/sh", append([]string{"-c", enter, "sh", filepath.Join(r.programs, "skep")},
		"run", "--yes", "--detach", "--", "/bin/sh", "-c", "while :; do sleep 0.1; done", r.programs+"/elsewhere")...)
	if code := s.wait(t); code != 0 {
		t.Fatalf("skep run ended with %d\n%s", code, s.err.String())
	}
	r.list()
	all := r.processes()
	for _, k := range []kind{daemon, worker} {
		for _, p := range all.of(k) {
			p.kill(t)
		}
	}
	r.settle(round{target: daemon, during: running}, false)
}

// ownGroups makes a group below our own in each hierarchy where a cell gets one.
func ownGroups(t *testing.T) []string {
	t.Helper()
	own, err := os.Open("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }()
	var made []string
	for lines := bufio.NewScanner(own); lines.Scan(); {
		fields := strings.SplitN(lines.Text(), ":", 3)
		if len(fields) != 3 || fields[1] != "memory" && fields[1] != "pids" {
			continue
		}
		dir := filepath.Join("/sys/fs/cgroup", fields[1], fields[2], "skep-crash-test-"+filepath.Base(t.TempDir())+filepath.Base(filepath.Dir(t.TempDir())))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Logf("no group in %s: %v", fields[1], err)
			continue
		}
		t.Cleanup(func() {
			for _, d := range []string{filepath.Join(dir, "skep"), dir} {
				if err := os.Remove(d); err != nil {
					t.Errorf("the group of the test: %v", err)
				}
			}
		})
		made = append(made, dir)
	}
	if len(made) == 0 {
		t.Skip("no control group can be made here, so none can be left")
	}
	return made
}
