package attack

import (
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// TestDiskBudgetHolds: wherever an agent puts its bytes, and whatever it closes or
// unlinks, a cell that holds more than its budget of the disk is ended (L13a).
func TestDiskBudgetHolds(t *testing.T) { testlab.Test(t, diskBudgetHolds) }

func diskBudgetHolds(t *testing.T, lab *testlab.Lab) {
	s := install(t, lab)
	s.start()
	fill := "head -c 20000000 /dev/zero > "
	for name, attempt := range map[string]struct {
		more, script string
		within       bool
	}{
		"in the project":               {"", fill + "big; sleep 50", false},
		"in the project, quickly":      {"", fill + "big", false},
		"in /tmp":                      {"", fill + "/tmp/big; sleep 50", false},
		"in its home":                  {"", fill + "~/big; sleep 50", false},
		"in a kept home":               {"home: kept\n", fill + "~/big; sleep 50", false},
		"in a kept home, quickly":      {"home: other\n", fill + "~/big", false},
		"in a closed directory":        {"", "mkdir d; " + fill + "d/big; chmod 000 d; sleep 50", false},
		"in a closed home":             {"", fill + "~/big; chmod 000 ~; sleep 50", false},
		"in a closed home, quickly":    {"", fill + "~/big; chmod 000 ~", false},
		"in a file without a name":     {"", "exec 3>f; rm f; head -c 20000000 /dev/zero >&3; sleep 50", false},
		"in one of a child's child":    {"", "(setsid sh -c 'exec 3>f; rm f; head -c 20000000 /dev/zero >&3; sleep 50' &) ; sleep 50", false},
		"without a name in /tmp":       {"", "exec 3>/tmp/f; rm /tmp/f; head -c 20000000 /dev/zero >&3; sleep 50", false},
		"nothing, beside a link":       {"", "ln -s /usr l; ln -s /usr ~/l; sleep 3", true},
		"a hole":                       {"", "truncate -s 1G hole; sleep 3", true},
		"a name for many, and no more": {"", "head -c 1500000 /dev/zero > a; for i in 1 2 3 4 5 6 7 8; do ln a $i; done; sleep 3", true},
	} {
		t.Run(name, func(t *testing.T) {
			profile := s.profile("budget: {disk: 4MiB}\n" + attempt.more)
			out, complaint, status := s.try("run", "--yes", "--profile", profile, "--", "/bin/sh", "-c", attempt.script)
			if attempt.within && status != 0 {
				t.Errorf("status %d\n%s%s", status, out, complaint)
			}
			if !attempt.within && (status == 0 || !strings.Contains(complaint, "disk")) {
				t.Errorf("status %d, not ended for the disk\n%s%s", status, out, complaint)
			}
			if _, complaint, status := s.try("drop", "last"); status != 0 {
				t.Errorf("what it wrote cannot be dropped: %s", complaint)
			}
		})
	}
}
