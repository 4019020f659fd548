package attack

import (
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestDangerousCallsAreRefused: io_uring, bpf, perf, userfaultfd, keyrings, modules and their kin (L11).
func TestDangerousCallsAreRefused(t *testing.T) {
	attack{
		technique: "kernel",
		root: []string{
			"bpf", "syslog", "kexec_load", "init_module", "finit_module", "delete_module", "reboot", "clock_settime",
			"sethostname", "acct", "iopl", "io_uring_setup", "perf_event_open", "userfaultfd",
		},
	}.run(t, celltest.New(t))
}
