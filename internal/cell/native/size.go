package native

import (
	"fmt"
	"os"
	"strings"
	"time"

	"skep.dev/skep/internal/cell"
)

// ticksPerSecond is USER_HZ, the unit of proc_stat(5) on every Linux.
const ticksPerSecond = 100

// processors is how many a cell sees; 0 is the host's.
func processors(l cell.Limits) int { return int((l.MilliCPU + 999) / 1000) }

// processorFiles are the lists of processors below /sys, which a cell sees of its
// own (L13b); none without a limit.
func processorFiles(l cell.Limits) []cell.File {
	n := processors(l)
	if n == 0 {
		return nil
	}
	list := "0\n"
	if n > 1 {
		list = fmt.Sprintf("0-%d\n", n-1)
	}
	var files []cell.File
	for _, name := range []string{"online", "possible", "present"} {
		files = append(files, cell.File{Path: "/sys/devices/system/cpu/" + name, Content: []byte(list)})
	}
	return files
}

// size is what a cell sees of itself at one moment.
type size struct {
	limits cell.Limits
	begin  time.Time // of the cell
	up     time.Duration
	usage  cell.Usage
	load   [3]float64 // processors in use over 1, 5 and 15 minutes
}

// files are the contents that cover those of /proc, by name: those that change.
func (s *size) files() map[string]string {
	files := map[string]string{
		"uptime":  fmt.Sprintf("%.2f %.2f\n", s.up.Seconds(), s.idle(max(processors(s.limits), 1)).Seconds()),
		"loadavg": fmt.Sprintf("%.2f %.2f %.2f 1/1 1\n", s.load[0], s.load[1], s.load[2]),
	}
	if s.limits.Memory > 0 {
		files["meminfo"] = s.meminfo()
	}
	if processors(s.limits) > 0 {
		files["stat"] = s.stat()
	}
	return files
}

// idle is what the cell's processors have not worked.
func (s *size) idle(n int) time.Duration { return max(0, time.Duration(n)*s.up-s.usage.CPU) }

// meminfo has the fields that programs read of proc_meminfo(5), in kB.
func (s *size) meminfo() string {
	total := s.limits.Memory / 1024
	used := min(s.usage.Memory/1024, total)
	cached := min(s.usage.Cache/1024, used)
	var b strings.Builder
	for _, f := range []struct {
		name string
		kB   int64
	}{
		{"MemTotal", total}, {"MemFree", total - used}, {"MemAvailable", total - used + cached}, {"Buffers", 0}, {"Cached", cached},
		{"SwapCached", 0}, {"Active", used - cached}, {"Inactive", cached}, {"SwapTotal", 0}, {"SwapFree", 0}, {"Shmem", 0},
		{"SReclaimable", 0}, {"CommitLimit", total}, {"Committed_AS", used - cached},
	} {
		fmt.Fprintf(&b, "%-15s %8d kB\n", f.name+":", f.kB)
	}
	return b.String()
}

// stat shows the cell's own processor time, evenly over its processors.
func (s *size) stat() string {
	n := processors(s.limits)
	ticks := func(d time.Duration, parts int) int64 {
		return int64(d) / int64(parts) / int64(time.Second/ticksPerSecond)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "cpu  %d 0 0 %d 0 0 0 0 0 0\n", ticks(s.usage.CPU, 1), ticks(s.idle(n), 1))
	for i := range n {
		fmt.Fprintf(&b, "cpu%d %d 0 0 %d 0 0 0 0 0 0\n", i, ticks(s.usage.CPU, n), ticks(s.idle(n), n))
	}
	fmt.Fprintf(&b, "ctxt 0\nbtime %d\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n", s.begin.Unix())
	return b.String()
}

// cpuinfo keeps the first stanzas of proc_cpuinfo(5): a file of every user on every
// Linux host, and only its lines on processors. It never changes.
func cpuinfo(n int) (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", fmt.Errorf("count the processors of the host: %w", err)
	}
	stanzas := strings.SplitAfter(string(text), "\n\n")
	return strings.Join(stanzas[:min(n, len(stanzas))], ""), nil
}
