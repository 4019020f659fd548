package native_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/sys"
)

// halfBuilt is a half-built cell (L22), by its processes.
type halfBuilt struct{ worker, warden, init int }

// prepared starts a worker and has it begin a cell.
func prepared(t *testing.T) (cell.Driver, halfBuilt) {
	t.Helper()
	var cmd *exec.Cmd
	d := celltest.Driver(t, func(c *exec.Cmd) { cmd = c })
	d.(cell.Preparer).Prepare()
	h := halfBuilt{worker: cmd.Process.Pid}
	soon(t, "a half-built cell", func() bool {
		for _, parent := range allChildren(h.worker) {
			for _, h.warden = range allChildren(parent) {
				for _, h.init = range allChildren(h.warden) {
					return waits(h.init) && waits(h.warden)
				}
			}
		}
		return false
	})
	return d, h
}

// waits reports whether a process sleeps in recvmsg, or as far as we may see sleeps.
func waits(pid int) bool {
	if call := text(pid, "syscall"); call != "" {
		return strings.HasPrefix(call, "47 ")
	}
	return strings.Contains(text(pid, "stat"), "(skep-half") && strings.Contains(text(pid, "stat"), ") S ")
}

// allChildren are those of every thread: a Go program forks on any.
func allChildren(pid int) (list []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for _, field := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(field); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

func text(pid int, file string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	return string(b)
}

func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("there is no %s", what)
		}
	}
}

func goneSoon(t *testing.T, pids ...int) {
	t.Helper()
	soon(t, "end of a half-built cell", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return syscall.Kill(pid, 0) == nil && !strings.Contains(text(pid, "stat"), ") Z ") })
	})
}

// A start takes the half-built cell, and its agent finds itself in a whole one.
func TestHalfBuiltCellIsCompleted(t *testing.T) {
	d, h := prepared(t)
	c := celltest.New(t, "/bin/bash", "-c", `cd "$0"; echo hi > f && cat f /etc/hostname; grep -E "^(CapBnd|NoNewPrivs|Seccomp):" /proc/self/status | tr -d "\t"
		ls /; ls /dev; cat /proc/kcore; touch /proc/sys/kernel/domainname; read -t 60; exit 3`)
	c.Spec.Argv = append(c.Spec.Argv, c.Work)
	r := c.Start(d)
	if got := warden(t, r); got != h.warden {
		t.Errorf("the cell's warden is %d, the prepared one was %d", got, h.warden)
	}
	send(t, c, 0, []byte("\n"))
	out := c.Output()
	<-r.Done()
	if r.Result().ExitCode != 3 || r.Result().Failed != nil {
		t.Errorf("%+v: %s", r.Result(), out)
	}
	for _, want := range []string{"hi\ncell\n", "CapBnd:0000000000000000", "NoNewPrivs:1", "Seccomp:2", "'/proc/sys/kernel/domainname': "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in %s", want, out)
		}
	}
	for _, not := range []string{"boot\n", "sda", "kmsg"} {
		if strings.Contains(out, not) {
			t.Errorf("%q of the host is in %s", not, out)
		}
	}
}

// A half-built cell holds no right, secret or layer (L22): no environment, no file of
// the host but the devices, and where the worker could show them beforehand no tree
// of the host. Its warden can do no more than that of a whole cell.
func TestHalfBuiltCellHoldsNothing(t *testing.T) {
	_, h := prepared(t)
	for _, pid := range []int{h.warden, h.init} {
		if env := text(pid, "environ"); env != "" {
			t.Errorf("process %d has the environment %q", pid, env)
		}
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(fds) == 0 {
			t.Skipf("the descriptors of process %d are not ours to see: %v", pid, err)
		}
		for _, fd := range fds {
			to, _ := os.Readlink(fd)
			if strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/dev/") && !strings.HasPrefix(to, "/memfd:skep-base") && !slices.Contains([]string{"/", "/tmp", "/proc"}, to) {
				t.Errorf("process %d holds %s", pid, to)
			}
		}
	}
	if want := "CapEff:\t0000000000081000"; !strings.Contains(text(h.warden, "status"), want) { // net_admin, sys_ptrace
		t.Errorf("the warden lacks %q: %s", want, text(h.warden, "status"))
	}
	if os.Getuid() != 0 {
		return // the worker cannot show a tree without the host's in view
	}
	for line := range strings.Lines(text(h.init, "mountinfo")) {
		at := strings.Fields(line)[4]
		if at != "/" && !strings.HasPrefix(at, "/dev") && !strings.HasPrefix(at, "/proc") {
			t.Errorf("it has a mount at %s", at)
		}
	}
}

// A half-built cell ends with its worker, however that ends (L20).
func TestHalfBuiltCellEndsWithItsWorker(t *testing.T) {
	_, h := prepared(t)
	if err := syscall.Kill(h.worker, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	goneSoon(t, h.warden, h.init)
	d, h := prepared(t)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	goneSoon(t, h.warden, h.init)
}

// Where a half-built cell has died, a start builds another, and the rest of it ends.
func TestHalfBuiltCellThatDiedIsReplaced(t *testing.T) {
	for _, dies := range []func(h halfBuilt) int{func(h halfBuilt) int { return h.warden }, func(h halfBuilt) int { return h.init }} {
		d, h := prepared(t)
		pidfd, err := sys.OpenPidfd(dies(h))
		if err != nil {
			t.Fatal(err)
		}
		if err := sys.KillPidfd(pidfd); err != nil {
			t.Fatal(err)
		}
		if err := sys.WaitPidfd(pidfd); err != nil {
			t.Fatal(err)
		}
		if out, r := celltest.New(t, "/bin/echo", "whole").RunOn(d); r.ExitCode != 0 || out != "whole\n" {
			t.Errorf("%+v: %s", r, out)
		}
		goneSoon(t, h.warden, h.init)
		_ = pidfd.Close()
	}
}

// The parent of the wardens may die between the two halves: nothing needs it any more.
func TestHalfBuiltCellOutlivesTheParent(t *testing.T) {
	d, h := prepared(t)
	for _, parent := range allChildren(h.worker) {
		if slices.Contains(allChildren(parent), h.warden) {
			if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 { // the second needs another parent
		if out, r := celltest.New(t, "/bin/echo", "whole").RunOn(d); r.ExitCode != 0 || out != "whole\n" {
			t.Errorf("%+v: %s", r, out)
		}
	}
}
