package native_test

import (
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

func TestAgentRunsAndItsStatusComesBack(t *testing.T) {
	c := celltest.New(t, "/bin/bash", "-c", "id; cat /etc/hostname; ls -la / /dev; grep -i cap /proc/self/status; cat /proc/mounts; cd $0; echo hi > f; ls -la; cat f; grep . /proc/self/uid_map; touch /usr/x; exec 3<>/dev/tcp/100.64.0.1/80; exit 7")
	c.Spec.Argv = append(c.Spec.Argv, c.Work)
	out, result := c.Run()
	t.Log(out)
	if result.ExitCode != 7 || result.Failed != nil {
		t.Fatalf("result %+v, want 7", result)
	}
}
