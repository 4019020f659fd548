package native_test

import (
	"strings"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// What an agent finds when it looks at itself: no capability, no new one to be
// had, one id, the cell's own name, no way to write what is read-only, no network.
func TestWhatAnAgentIs(t *testing.T) {
	c := celltest.New(t, "/bin/bash", "-c", `cd "$0"; echo "uid $(id -u)"; cat /etc/hostname
		grep -E "^(Cap|NoNewPrivs|Seccomp):?" /proc/self/status | tr -d "\t"; cat /proc/self/uid_map | wc -l
		echo hi > f && cat f; touch /usr/x; touch /x; touch /dev/x; touch /proc/sys/kernel/domainname
		exec 3<>/dev/tcp/100.64.0.1/80`)
	c.Spec.Argv = append(c.Spec.Argv, c.Work)
	out, result := c.Run()
	if result.ExitCode != 1 || result.Failed != nil {
		t.Fatalf("%+v: %s", result, out)
	}
	if strings.Contains(out, "uid 0\n") {
		t.Errorf("the agent is root: %s", out)
	}
	for _, want := range []string{
		"cell\n", "CapInh:0000000000000000", "CapPrm:0000000000000000", "CapEff:0000000000000000",
		"CapBnd:0000000000000000", "CapAmb:0000000000000000", "NoNewPrivs:1", "\n1\nhi\n",
		"'/usr/x': Read-only file system", "'/x': ", "'/dev/x': ", "'/proc/sys/kernel/domainname': ",
		"connect: Connection refused",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in %s", want, out)
		}
	}
}
