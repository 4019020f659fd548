package serve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// Hierarchy is one parent cgroup of all cells, made by whoever started the
// worker (L13). The worker makes children in it and touches nothing else.
type Hierarchy struct {
	Dir         *os.File
	Unified     bool     // cgroup v2
	Controllers []string // memory, pids, cpu: those that are on here
	Left        bool     // an earlier start's: cells' groups are removed in it, and none is made
}

type cgroups struct{ parents []Hierarchy }

func (c *cgroups) has(controller string) bool {
	return slices.ContainsFunc(c.parents, func(h Hierarchy) bool { return slices.Contains(h.Controllers, controller) })
}

// enforceable says which limits a cell can have on this host. Processes can be
// limited without a cgroup, by the cell's own user namespace.
func (c *cgroups) enforceable() proto.Enforced {
	return proto.Enforced{Memory: c.has("memory"), CPU: c.has("cpu"), Pids: true, Time: c.counted()}
}

// counted reports whether a cell's processor time can be read.
func (c *cgroups) counted() bool {
	return slices.ContainsFunc(c.parents, func(h Hierarchy) bool {
		return slices.Contains(h.Controllers, "cpuacct") || (h.Unified && slices.Contains(h.Controllers, "cpu"))
	})
}

// usage is what the kernel has counted of a cell so far. Of one without a group
// nothing is.
func (c *cgroups) usage(cell string) *proto.Usage {
	var u proto.Usage
	for _, h := range c.parents {
		c.count(h, cell, &u)
	}
	return &u
}

// limitFile is a file of a group and what is written to it. A kernel that counts no
// swap has not the optional ones.
type limitFile struct {
	name, value string
	optional    bool
}

// limitFiles are what limits are written to, in this order: version 1 takes no bound
// of memory and swap together below that of memory.
func limitFiles(h Hierarchy, l proto.Limits) (files []limitFile) {
	const period = 100_000 // microseconds
	memory, pids := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(l.Pids, 10)
	quota := strconv.FormatInt(l.MilliCPU*period/1000, 10)
	limited := func(controller string, amount int64) bool {
		return amount != 0 && slices.Contains(h.Controllers, controller)
	}
	switch {
	case limited("memory", l.Memory) && h.Unified:
		files = append(files, limitFile{name: "memory.max", value: memory}, limitFile{"memory.swap.max", "0", true})
	case limited("memory", l.Memory):
		files = append(files, limitFile{name: "memory.limit_in_bytes", value: memory}, limitFile{"memory.memsw.limit_in_bytes", memory, true})
	}
	if limited("pids", l.Pids) {
		files = append(files, limitFile{name: "pids.max", value: pids})
	}
	switch {
	case limited("cpu", l.MilliCPU) && h.Unified:
		files = append(files, limitFile{name: "cpu.max", value: fmt.Sprintf("%s %d", quota, period)})
	case limited("cpu", l.MilliCPU):
		files = append(files, limitFile{name: "cpu.cfs_quota_us", value: quota})
	}
	return files
}

// enforced says which of these limits hold in a cell.
func (c *cgroups) enforced(l proto.Limits) proto.Enforced {
	return proto.Enforced{
		Memory: l.Memory > 0 && c.has("memory"), CPU: l.MilliCPU > 0 && c.has("cpu"), Pids: l.Pids > 0, Time: c.counted(),
	}
}

// create makes the cell's groups with their limits and returns the files by which
// PID 1 enters them, open for writing. In version 1 that is tasks: a thread that
// moves itself takes no lock, where a move by cgroup.procs waits for a grace
// period of the kernel's, 4 to 12 ms each. A version 2 group without controllers
// would cost the same and limits nothing: there is none.
func (c *cgroups) create(cell string, l proto.Limits) (procs []*os.File, err error) {
	defer func() {
		if err != nil {
			sys.CloseAll(procs)
			procs = nil
			_, _ = c.remove(cell)
		}
	}()
	for _, h := range c.parents {
		if h.Left {
			continue
		}
		enter := "/tasks"
		if h.Unified {
			enter = "/cgroup.procs"
		}
		if h.Unified && len(h.Controllers) == 0 {
			continue
		}
		if err := sys.MakeChild(h.Dir, cell, 0o755); err != nil {
			return procs, fmt.Errorf("make the cell's cgroup: %w", err)
		}
		for _, f := range limitFiles(h, l) {
			err := writeIn(h.Dir, cell+"/"+f.name, f.value)
			if err != nil && (!f.optional || !errors.Is(err, fs.ErrNotExist)) {
				return procs, fmt.Errorf("limit the cell: %w", err)
			}
		}
		f, err := sys.OpenChild(h.Dir, cell+enter, sys.WriteOnly)
		if err != nil {
			return procs, err
		}
		procs = append(procs, f)
	}
	return procs, nil
}

// remove reads what the kernel counted and removes the cell's groups, those of an
// earlier start too. A group
// that is not there is no error; one that still holds a dying process is tried again.
func (c *cgroups) remove(cell string) (*proto.Usage, error) {
	var usage proto.Usage
	var failed error
	for _, h := range c.parents {
		c.count(h, cell, &usage)
		for try := 0; ; try++ {
			err := sys.RemoveChild(h.Dir, cell)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, syscall.EBUSY) || try == 50 {
				failed = errors.Join(failed, err)
				break
			}
			time.Sleep(2 * time.Millisecond) //nolint:forbidigo // version 1 tells nobody when a group is empty
		}
	}
	return &usage, failed
}

func (c *cgroups) count(h Hierarchy, cell string, u *proto.Usage) {
	number := func(file string) int64 {
		n, err := strconv.ParseInt(strings.TrimSpace(readIn(h.Dir, cell+"/"+file)), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	field := func(file, key string) int64 {
		for line := range strings.Lines(readIn(h.Dir, cell+"/"+file)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == key {
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					return 0
				}
				return n
			}
		}
		return 0
	}
	for _, controller := range h.Controllers {
		switch {
		case controller == "memory" && h.Unified:
			u.MemoryPeak, u.OOMKills = number("memory.peak"), field("memory.events", "oom_kill")
			u.Memory, u.Cache = number("memory.current"), field("memory.stat", "file")
		case controller == "memory":
			u.MemoryPeak, u.OOMKills = number("memory.max_usage_in_bytes"), field("memory.oom_control", "oom_kill")
			u.Memory, u.Cache = number("memory.usage_in_bytes"), field("memory.stat", "cache")
		case controller == "pids":
			u.PidsMax = field("pids.events", "max")
		case controller == "cpu" && h.Unified:
			u.CPUNanos = field("cpu.stat", "usage_usec") * 1000
		case controller == "cpuacct":
			u.CPUNanos = number("cpuacct.usage")
		}
	}
}

func writeIn(dir *os.File, name, value string) error {
	f, err := sys.OpenChild(dir, name, sys.WriteOnly)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, name, err)
	}
	return nil
}

func readIn(dir *os.File, name string) string {
	f, err := sys.OpenChild(dir, name, sys.ReadOnly)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	var text bytes.Buffer
	_, _ = io.Copy(&text, io.LimitReader(f, 1<<16))
	return text.String()
}

// ParseHierarchy reads FD:v1|v2|left:CONTROLLER,... and takes over the descriptor.
func ParseHierarchy(text string) (Hierarchy, error) {
	fields := strings.Split(text, ":")
	if len(fields) != 3 || !slices.Contains([]string{"v1", "v2", "left"}, fields[1]) {
		return Hierarchy{}, fmt.Errorf("read the cgroup %q: want FD, v1, v2 or left, and a list of controllers", text)
	}
	fd, err := strconv.Atoi(fields[0])
	if err != nil || fd < 3 {
		return Hierarchy{}, fmt.Errorf("read the cgroup %q: %q is no descriptor", text, fields[0])
	}
	dir, err := sys.InheritedPlace(fd, "cgroup")
	if err != nil {
		return Hierarchy{}, err
	}
	h := Hierarchy{Dir: dir, Unified: fields[1] == "v2", Left: fields[1] == "left"}
	if fields[2] != "" {
		h.Controllers = strings.Split(fields[2], ",")
	}
	return h, nil
}
