package serve

import (
	"fmt"
	"os"

	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/worker/proto"
)

// Steps that no request may ask for: what they show is the same in every cell.
const (
	opDevPTS proto.Op = "devpts" // mount the cell's own terminals
	opProc   proto.Op = "proc"   // mount the cell's own /proc
	opDevice proto.Op = "device" // mount the host's node FD
)

// base is what every cell has before anything of its own (L22): the spec of it, and
// the nodes of the host that the spec names.
type base struct {
	spec  *os.File
	size  int
	nodes []*os.File
}

func newBase(capable bool) (*base, error) {
	b := &base{}
	steps := []proto.Step{
		{Op: proto.OpDir, Path: "/dev", Mode: 0o755},
		{Op: proto.OpTmpfs, Path: "/dev", Mode: 0o755, Size: 1 << 16, NoExec: true},
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} { // L7
		f, err := sys.OpenPath("/dev/" + name)
		if err != nil {
			return nil, fmt.Errorf("open a device of every cell: %w", err)
		}
		// Read-only means the node itself: an agent may write to the device, not set the times of the host's file.
		steps = append(steps, proto.Step{Op: proto.OpFile, Path: "/dev/" + name, Mode: 0o666},
			proto.Step{Op: opDevice, Path: "/dev/" + name, FD: len(b.nodes), NoExec: true, ReadOnly: true})
		b.nodes = append(b.nodes, f)
	}
	for _, l := range [][2]string{
		{"fd", "/proc/self/fd"}, {"stdin", "fd/0"}, {"stdout", "fd/1"}, {"stderr", "fd/2"}, {"ptmx", "pts/ptmx"},
	} {
		steps = append(steps, proto.Step{Op: proto.OpSymlink, Path: "/dev/" + l[0], Target: l[1]})
	}
	steps = append(steps,
		proto.Step{Op: proto.OpDir, Path: "/dev/pts", Mode: 0o755},
		proto.Step{Op: opDevPTS, Path: "/dev/pts", NoExec: true},
		proto.Step{Op: proto.OpDir, Path: "/dev/shm", Mode: 0o755},
		proto.Step{Op: proto.OpDir, Path: "/proc", Mode: 0o555},
		proto.Step{Op: opProc, Path: "/proc", NoExec: true})
	encoded, err := encodeSpec(&proto.Build{Argv: []string{"-"}, Dir: "/", Steps: append(steps, masks()...)}, capable, proto.Limits{})
	if err != nil {
		return nil, err
	}
	b.size = len(encoded)
	b.spec, err = sys.SealedFile("skep-base", encoded)
	return b, err
}

// masks closes what the kernel shows or takes of the whole machine (L17a).
func masks() []proto.Step {
	var steps []proto.Step
	for _, p := range []string{"sys", "irq", "bus", "fs", "acpi", "sysrq-trigger"} {
		steps = append(steps, proto.Step{Op: proto.OpSelf, Path: "/proc/" + p, ReadOnly: true, NoExec: true, Optional: true})
	}
	for _, p := range []string{
		"kcore", "kallsyms", "keys", "key-users", "kmsg", "timer_list", "sched_debug", "kpagecount", "kpageflags",
		"kpagecgroup", "latency_stats", "config.gz", "vmallocinfo", "slabinfo", "pagetypeinfo",
	} {
		steps = append(steps, proto.Step{Op: proto.OpHide, Path: "/proc/" + p})
	}
	return steps
}
