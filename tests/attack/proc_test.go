package attack

import (
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestProcAndSysOfTheMachine: neither shows nor takes what is the whole machine's (L7, L17a).
func TestProcAndSysOfTheMachine(t *testing.T) {
	pid, _ := victim(t)
	attack{
		technique: "proc", outside: []string{pid}, inside: []string{"1"},
		root: []string{
			"write /proc/sys/kernel/core_pattern", "write /proc/sys/kernel/modprobe", "write /proc/sys/kernel/hostname",
			"write /proc/sys/vm/overcommit_memory", "write /proc/sys/net/ipv4/ip_forward", "write /proc/sys/net/ipv4/ip_unprivileged_port_start",
			"write /proc/sys/fs/binfmt_misc", "write /proc/sysrq-trigger", "write /proc/irq/default_smp_affinity",
			"write /proc/sys/kernel/ns_last_pid", "write /sys/kernel/uevent_helper", "write /sys/power/state",
			"write /sys/fs/cgroup/release_agent", "read /proc/kcore", "read /proc/timer_list", "read /proc/slabinfo", "read /proc/kpagecount",
			"/sys/kernel/debug",
		},
	}.run(t, celltest.New(t))
}
