package crash

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// kind is what a process is to Skep.
type kind string

const (
	command  kind = "skep"
	daemon   kind = "skepd"
	worker   kind = "skep-worker"
	layer    kind = "layer process"
	resident kind = "resident warden"
	warden   kind = "warden"
	pid1     kind = "PID 1"
	agent    kind = "agent"
	half     kind = "warden of a half-built cell"
	halfPID1 kind = "PID 1 of a half-built cell"
	spareBox kind = "spare box"
	liveBox  kind = "box"
	model    kind = "skep-model"

	everything kind = "every program"
)

// process is one process of the test's own Skep.
type process struct {
	pid, parent int
	start       uint64 // clock ticks since boot: with pid it names a process for ever
	name        string
	args        []string
	kind        kind
}

// table is all processes at a moment.
type table map[int]*process

// processes are those whose command line names dir, those that were met before, and all
// below them. met is by process number, and holds when each began: a warden whose
// parent is gone names no path.
func processes(t *testing.T, dir string, met map[int]uint64) table {
	t.Helper()
	all := table{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if p := read(pid); p != nil {
			all[pid] = p
		}
	}
	ours := table{}
	for changed := true; changed; {
		changed = false
		for pid, p := range all {
			below := ours[p.parent] != nil
			named := slices.ContainsFunc(p.args, func(a string) bool { return strings.Contains(a, dir) })
			if ours[pid] == nil && (below || named || met[pid] == p.start) {
				ours[pid], changed = p, true
				met[pid] = p.start
			}
			// An agent has a name of ours in its arguments, and a warden above it.
			if above := all[p.parent]; ours[pid] != nil && above != nil && ours[p.parent] == nil && filepath.Base(above.args[0]) == "skep-warden" {
				ours[p.parent], changed = above, true
			}
		}
	}
	ours.classify()
	return ours
}

// read is nil for a process that has gone, or is about to.
func read(pid int) *process {
	at := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(at, "stat"))
	if err != nil {
		return nil
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if open < 0 || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return nil
	}
	p := &process{pid: pid, name: string(stat[open+1 : end])}
	p.parent, _ = strconv.Atoi(fields[1])
	p.start, _ = strconv.ParseUint(fields[19], 10, 64)
	line, err := os.ReadFile(filepath.Join(at, "cmdline"))
	if err != nil {
		return nil
	}
	p.args = strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	return p
}

// classify says what each is. A warden and its PID 1 are clones of the resident one.
func (t table) classify() {
	is := func(p *process, k kind) bool { return p != nil && p.kind == k }
	byStart := slices.SortedFunc(maps.Values(t), func(a, b *process) int {
		if a.start != b.start {
			return int(a.start) - int(b.start)
		}
		return a.pid - b.pid
	})
	for _, p := range byStart {
		// Between fork and exec a child has the arguments of its parent: it is nothing yet.
		if above := t[p.parent]; above != nil && filepath.Base(p.args[0]) != "skep-warden" && slices.Equal(p.args, above.args) {
			continue
		}
		switch filepath.Base(p.args[0]) {
		case "skep":
			p.kind = command
		case "skepd":
			p.kind = daemon
		case "skep-worker":
			p.kind = worker
			if slices.Contains(p.args, "layer") {
				p.kind = layer
			}
		case "skep-model":
			p.kind = model
		case "skep-box":
			p.kind = spareBox
		case "skep-warden":
			switch {
			case p.name == "skep-half":
				p.kind = half
				if is(t[p.parent], half) {
					p.kind = halfPID1 // before it has its name
				}
			case p.name == "skep-half-pid1":
				p.kind = halfPID1
			case p.name == "skep-pid1":
				p.kind = pid1
				if is(t[p.parent], pid1) {
					p.kind = agent // before its exec
				}
			case is(t[p.parent], worker):
				p.kind = resident
			case is(t[p.parent], warden):
				p.kind = pid1 // before it has its name
			default:
				p.kind = warden
			}
		default:
			if is(t[p.parent], pid1) {
				p.kind = agent
			}
		}
	}
	// Each warden has a box; a spare one may be there or not, and started last.
	cells := len(t.of(warden))
	for _, p := range byStart {
		if p.kind == spareBox && cells > 0 {
			p.kind = liveBox
			cells--
		}
	}
}

// of lists the processes of a kind. Those that a cell's end takes along are last.
func (t table) of(k kind) []*process {
	var found []*process
	if k == everything {
		for _, k := range []kind{daemon, worker, resident, liveBox, spareBox, model, half, halfPID1, warden, pid1} {
			found = append(found, t.of(k)...)
		}
		return found
	}
	for _, p := range t {
		if p.kind == k {
			found = append(found, p)
		}
	}
	return found
}

// kill ends a process if it is still the one that was seen.
func (p *process) kill(t *testing.T) bool {
	t.Helper()
	now := read(p.pid)
	if now == nil || now.start != p.start {
		return false
	}
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		if !errors.Is(err, syscall.ESRCH) {
			t.Errorf("kill %s %d: %v", p.kind, p.pid, err)
		}
		return false
	}
	return true
}
