// Package terms says what a profile comes to on this host: which of its limits hold
// here, and its rights as the record tells them.
//
// Its law: a limit that cannot be held and was not marked so is a refusal with its
// line, never silence.
package terms

import (
	"fmt"
	"slices"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/profile"
	"skep.dev/skep/internal/profile/pathplan"
	"skep.dev/skep/internal/right"
)

// Enforceable lists the limits that this host cannot hold and that the profile
// marks as if_available; one that it demands is a refusal with its line (L2b, L13).
func Enforceable(p *profile.Profile, holds cell.Enforced) (unenforced []string, err error) {
	for _, l := range []struct {
		key   string
		limit right.Limit
		held  bool
		why   string
	}{
		{"cpus", p.Budget.CPUs, holds.CPU, "no cpu controller is delegated to skepd"},
		{"cpu_time", p.Budget.CPUTime, holds.Time, "no cgroup counts the processor time of its cells"},
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
			return nil, &Unheld{Key: l.key, File: p.File, Line: p.Line("budget." + l.key), Why: l.why}
		}
		unenforced = append(unenforced, l.key)
	}
	return unenforced, nil
}

// Unheld is a limit that a profile demands and this host does not hold.
type Unheld struct {
	Key, File string
	Line      int
	Why       string
}

func (u *Unheld) Error() string {
	return fmt.Sprintf("budget.%s (line %d of %s) cannot be enforced here: %s; %s", u.Key, u.Line, u.File, u.Why, u.Fix())
}

// Fix says how to run without it.
func (u *Unheld) Fix() string {
	return fmt.Sprintf("write `%s: {limit: ..., if_available: true}` to run without it", u.Key)
}

// Limits are those that the kernel is to hold; what it cannot was judged before.
func Limits(p *profile.Profile, unenforced []string) cell.Limits {
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

// Rules are the path rights of a plan, by real path, in canonical text.
func Rules(plan *pathplan.Plan) []string {
	out := make([]string, 0, len(plan.Rules))
	for _, r := range plan.Rules {
		out = append(out, r.Path.String())
	}
	return out
}

// Rights are all rights of a profile in canonical text, sorted (L3). Of variables that
// it sets the names are told and the values are not: one may be a secret, and the
// digest of the profile binds them.
func Rights(p *profile.Profile, plan *pathplan.Plan) []string {
	out := []string{}
	for _, r := range plan.Rules {
		out = append(out, "path "+r.Path.String())
	}
	for _, n := range p.Net {
		out = append(out, "net "+n.Net.String())
	}
	if p.NoDesk {
		out = append(out, "policy_endpoint off")
	}
	if p.AskUnlisted {
		out = append(out, "unlisted ask")
	}
	for _, r := range p.Resolved {
		out = append(out, "resolved_addresses cidr="+r.Prefix.String()+" ports="+r.Ports.String())
	}
	for _, s := range p.Secrets {
		text := "secret " + s.Right().String()
		if s.Set {
			text += " set=true"
		}
		if s.End {
			text += " on_misuse=end"
		}
		out = append(out, text)
	}
	if len(p.Model.Roles) > 0 {
		out = append(out, "model "+p.Model.String())
	}
	if p.Budget.Budget != (right.Budget{}) {
		out = append(out, "budget "+p.Budget.Budget.String())
	}
	for _, name := range p.Env.Pass {
		out = append(out, "env pass="+name)
	}
	for name := range p.Env.Set {
		out = append(out, "env set="+name)
	}
	if p.Home != "" {
		out = append(out, "home "+p.Home)
	}
	if p.Raw {
		out = append(out, "terminal raw")
	}
	if p.Agent.Granted {
		out = append(out, "agent_socket "+p.Agent.String())
	}
	slices.Sort(out)
	return out
}

// Started is the ledger's entry of a start that took so long, behind the walls that hold.
func Started(held cell.Enforced, unenforced []string, took time.Duration) *kind.CellStarted {
	walls := []string{"namespaces", "landlock", "seccomp", "boundary"}
	if held.Memory || held.CPU {
		walls = append(walls, "cgroup")
	}
	if unenforced == nil {
		unenforced = []string{} // the entry has a list, be it empty
	}
	return &kind.CellStarted{
		Driver: "native", Walls: walls, NotEnforced: unenforced, Ms: uint64(max(0, took.Milliseconds())),
	}
}

// BoxLimits are the limits that a cell's box applies (B150).
func BoxLimits(p *profile.Profile) *skepv1.BoxLimits {
	_, leased := p.Budget.Net.Value()
	return &skepv1.BoxLimits{
		OpenFlows: limit.OpenFlows, IdleTcpSeconds: uint32(limit.IdleTCP / time.Second), Leased: leased,
	}
}
