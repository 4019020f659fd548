package daemon

import (
	"fmt"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/right"
)

// enforceable lists the limits that this host cannot hold and that the profile
// marks as if_available; one that it demands is a refusal with its line (L2b, L13).
func (d *Daemon) enforceable(p *profile.Profile) (unenforced []string, err error) {
	holds := d.feature.Limits
	for _, l := range []struct {
		key   string
		limit right.Limit
		held  bool
		why   string
	}{
		{"cpus", p.Budget.CPUs, holds.CPU, "no cpu controller is delegated to skepd"},
		{"cpu_time", p.Budget.CPUTime, false, "processor time is not counted by this build"},
		{"memory", p.Budget.Memory, holds.Memory, "no memory controller is delegated to skepd"},
		{"pids", p.Budget.PIDs, true, ""}, // by rlimit at least
		{"wall", p.Budget.Wall, true, ""},
		{"disk", p.Budget.Disk, true, ""},
		{"net", p.Budget.Net, true, ""},
		{"sandbox", p.Budget.Sandbox, false, "tool sandboxes are not in this build"},
	} {
		if _, bounded := l.limit.Value(); !bounded || l.held {
			continue
		}
		if !p.Budget.Optional(l.key) {
			return nil, fmt.Errorf("budget.%s (line %d of %s) cannot be enforced here: %s; write `%s: {limit: ..., if_available: true}` to run without it",
				l.key, p.Line("budget."+l.key), p.File, l.why, l.key)
		}
		unenforced = append(unenforced, l.key)
	}
	return unenforced, nil
}

// limits are those that the kernel is to hold; what it cannot was judged before.
func limits(p *profile.Profile, unenforced []string) cell.Limits {
	amount := func(key string, l right.Limit) int64 {
		n, bounded := l.Value()
		for _, u := range unenforced {
			if u == key {
				return 0
			}
		}
		if !bounded {
			return 0
		}
		return max(1, n) // 0 would be no limit
	}
	return cell.Limits{
		Memory: amount("memory", p.Budget.Memory), Pids: amount("pids", p.Budget.PIDs), MilliCPU: amount("cpus", p.Budget.CPUs),
	}
}
