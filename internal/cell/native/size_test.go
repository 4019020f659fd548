package native_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
)

// The size that a cell sees is its own (R01).
func TestCellSeesItsOwnSize(t *testing.T) {
	c := celltest.New(t, "/bin/sh", "-c", "nproc; grep -c ^processor /proc/cpuinfo; grep MemTotal /proc/meminfo; grep -c ^cpu /proc/stat; cat /sys/devices/system/cpu/online; echo x 2>/dev/null >/proc/meminfo || echo closed")
	c.Spec.Limits = cell.Limits{MilliCPU: 1000, Memory: 1 << 30}
	d := celltest.Driver(t)
	r := c.Start(d)
	out := c.Output()
	<-r.Done()
	want := "1\nMemTotal:        1048576 kB\n2\n0\nclosed\n"
	if !strings.HasSuffix(out, want) {
		t.Errorf("%q, want the end %q", out, want)
	}
	if r.Enforced().CPU && !strings.HasPrefix(out, "1\n") {
		t.Errorf("nproc: %q", out)
	}
}

// What a cell sees of itself moves while it runs, and is not the host's: time since
// its own start, the memory that it took, the processors that it used.
func TestCellSeesItsOwnUse(t *testing.T) {
	c := celltest.New(t, "/bin/sh", "-c", `cat /proc/uptime; cat /proc/loadavg; free -k | sed -n 2p; grep '^cpu ' /proc/stat
head -c 100000000 /dev/zero >/dev/shm/taken; end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do :; done
cat /proc/uptime; cat /proc/loadavg; free -k | sed -n 2p; grep '^cpu ' /proc/stat; uptime -p`)
	c.Spec.Limits, c.Spec.ShmSize = cell.Limits{MilliCPU: 1000, Memory: 1 << 30}, 200<<20
	r := c.Start(celltest.Driver(t))
	out := c.Output()
	<-r.Done()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 9 {
		t.Fatalf("%q", out)
	}
	number := func(line, field int) float64 {
		f, err := strconv.ParseFloat(strings.Fields(lines[line])[field], 64)
		if err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		return f
	}
	if before, after := number(0, 0), number(4, 0); before > 5 || after < before+1 || after > before+20 {
		t.Errorf("uptime went from %v to %v s", before, after)
	}
	if total := number(6, 1); total != 1<<20 {
		t.Errorf("free says %v kB in all", total)
	}
	if lines[8] == "" || strings.Contains(lines[8], "day") {
		t.Errorf("uptime -p says %q", lines[8])
	}
	if !r.Enforced().Time || !r.Enforced().Memory {
		t.Log("this host counts nothing for a cell: memory and load stay as they are")
		return
	}
	if before, after := number(2, 2), number(6, 2); after-before < 20_000 && number(6, 5)-number(2, 5) < 90_000 {
		t.Errorf("of 100 MB taken free says %v, then %v kB used: %q", before, after, out)
	}
	if ticks := number(7, 1) - number(3, 1); ticks < 50 || ticks > 1000 {
		t.Errorf("3 s of work are %v ticks in /proc/stat", ticks)
	}
	if number(5, 0) <= 0 {
		t.Errorf("3 s of work are no load: %q", lines[5])
	}
}

// Runtimes that read their machine read the cell's: how much memory, how many
// processors.
func TestRuntimesSeeTheCell(t *testing.T) {
	for _, p := range []struct {
		program string
		args    []string
		want    string
		files   bool // it reads files alone
	}{
		{"/usr/bin/python3", []string{"-c", "import os; print(os.cpu_count(), os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGESIZE'))"}, "1 1073741824", false},
		{"/usr/bin/node", []string{"-p", "const os = require('os'); os.cpus().length + ' ' + os.totalmem() + ' ' + (os.uptime() < 60)"}, "1 1073741824 true", true},
		{"/usr/bin/java", []string{"-XX:+PrintFlagsFinal", "-version"}, "MaxHeapSize = 268435456", false},
	} {
		t.Run(filepath.Base(p.program), func(t *testing.T) {
			if _, err := exec.LookPath(p.program); err != nil {
				t.Skip(err)
			}
			c := celltest.New(t, append([]string{p.program}, p.args...)...)
			for _, dir := range []string{"/etc/alternatives", "/etc/java-17-openjdk", "/etc/java-21-openjdk"} {
				if _, err := os.Stat(dir); err == nil {
					c.ReadOnly(dir)
				}
			}
			c.Spec.Limits = cell.Limits{MilliCPU: 1000, Memory: 1 << 30}
			r := c.Start(celltest.Driver(t))
			out := c.Output()
			<-r.Done()
			if r.Result().ExitCode != 0 {
				t.Fatalf("it ended with %d: %s", r.Result().ExitCode, out)
			}
			// What is asked of the kernel by a call is answered where the limit is enforced.
			if out := strings.Join(strings.Fields(out), " "); p.files || (r.Enforced().Memory && r.Enforced().CPU) {
				if !strings.Contains(out, p.want) {
					t.Errorf("it sees %.300q, want %q", out, p.want)
				}
			}
		})
	}
}
