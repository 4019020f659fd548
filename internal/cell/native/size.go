package native

import (
	"fmt"
	"os"
	"strings"

	"skep.dev/skep/internal/cell"
)

// size returns the files that show a cell its own size instead of the host's
// (L13b), for those limits that are enforced. sysinfo(2) and
// sched_getaffinity(2) are answered by the warden.
func size(l cell.Limits) []cell.File {
	var files []cell.File
	add := func(path, content string) {
		files = append(files, cell.File{Path: path, Content: []byte(content)})
	}
	if l.Memory > 0 {
		add("/proc/meminfo", meminfo(l.Memory))
	}
	if l.MilliCPU > 0 {
		n := int((l.MilliCPU + 999) / 1000)
		list := "0\n"
		if n > 1 {
			list = fmt.Sprintf("0-%d\n", n-1)
		}
		for _, name := range []string{"online", "possible", "present"} {
			add("/sys/devices/system/cpu/"+name, list)
		}
		// Files of every user on every Linux host, and only their lines on processors.
		if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
			add("/proc/cpuinfo", firstProcessors(string(text), n))
		}
		if text, err := os.ReadFile("/proc/stat"); err == nil {
			add("/proc/stat", firstStat(string(text), n))
		}
		add("/proc/loadavg", "0.00 0.00 0.00 1/1 1\n")
	}
	return files
}

// meminfo has the fields that programs read of proc_meminfo(5), in kB.
func meminfo(limit int64) string {
	total := limit / 1024
	var b strings.Builder
	for _, f := range []struct {
		name string
		kB   int64
	}{
		{"MemTotal", total}, {"MemFree", total}, {"MemAvailable", total}, {"Buffers", 0}, {"Cached", 0},
		{"SwapCached", 0}, {"Active", 0}, {"Inactive", 0}, {"SwapTotal", 0}, {"SwapFree", 0}, {"Shmem", 0},
		{"SReclaimable", 0}, {"CommitLimit", total}, {"Committed_AS", 0},
	} {
		fmt.Fprintf(&b, "%-15s %8d kB\n", f.name+":", f.kB)
	}
	return b.String()
}

// firstProcessors keeps the first n stanzas of proc_cpuinfo(5).
func firstProcessors(text string, n int) string {
	stanzas := strings.SplitAfter(text, "\n\n")
	return strings.Join(stanzas[:min(n, len(stanzas))], "")
}

// firstStat keeps the first n processors of proc_stat(5), without what they did
// for others.
func firstStat(text string, n int) string {
	var b strings.Builder
	b.WriteString("cpu  0 0 0 0 0 0 0 0 0 0\n")
	for i := range n {
		fmt.Fprintf(&b, "cpu%d 0 0 0 0 0 0 0 0 0 0\n", i)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "btime ") {
			b.WriteString(line)
		}
	}
	b.WriteString("ctxt 0\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n")
	return b.String()
}
