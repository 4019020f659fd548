package start

import (
	"bufio"
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

	"github.com/vishvananda/netlink"
)

// running starts an agent behind skep-init and waits until it has said "ready".
func running(t *testing.T, b *testBoundary, flags []string, args ...string) (*exec.Cmd, *bufio.Scanner, *strings.Builder) {
	t.Helper()
	c := command(t, b, flags, args...)
	said := &strings.Builder{}
	c.Stderr = said
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		_ = c.Wait()
		t.Fatalf("the agent says %q, skep-init %q", lines.Text(), said.String())
	}
	return c, lines, said
}

// ended waits for the exit status.
func ended(c *exec.Cmd) int {
	_ = c.Wait()
	return c.ProcessState.ExitCode()
}

// TestGI3BothRoutes: an interface that appears ends the agent, and is named (G12).
func TestGI3BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		c, _, said := running(t, serveBoundary(t, nil), flags, "/bin/sh", "-c", "echo ready; exec sleep 60")
		inner := children(t, c.Process.Pid)
		if len(inner) != 1 {
			t.Fatalf("skep-init has %d children", len(inner))
		}
		add := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "skep-t0"}, PeerName: "eth7", PeerNamespace: netlink.NsPid(inner[0])}
		if err := netlink.LinkAdd(add); err != nil {
			t.Skipf("no interface can be put into the guest from here: %v", err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(add) })
		if code := ended(c); code != 125 || !strings.Contains(said.String(), "interface eth7, so the agent would have a second way out") {
			t.Errorf("it ended with %d: %s", code, said.String())
		}
	})
}

// children are the ids of a process's children.
func children(t *testing.T, pid int) []int {
	t.Helper()
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(field); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// TestGI4BothRoutes: who ignores SIGTERM is killed at the grace, or at a second signal.
func TestGI4BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		stubborn := []string{"/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"}
		c, _, _ := running(t, serveBoundary(t, nil), append(slices.Clone(flags), "--grace", "300ms"), stubborn...)
		begin := time.Now()
		_ = c.Process.Signal(syscall.SIGTERM)
		if code := ended(c); code != 137 || time.Since(begin) < 300*time.Millisecond {
			t.Errorf("after the grace: %d in %s", code, time.Since(begin))
		}
		c, _, _ = running(t, serveBoundary(t, nil), append(slices.Clone(flags), "--grace", "1h"), stubborn...)
		_ = c.Process.Signal(syscall.SIGTERM)
		again := time.AfterFunc(200*time.Millisecond, func() { _ = c.Process.Signal(syscall.SIGINT) })
		defer again.Stop()
		if code := ended(c); code != 137 {
			t.Errorf("after a second signal: %d", code)
		}
	})
}

// TestGI5BothRoutes: orphans leave no zombie.
func TestGI5BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		c, lines, _ := running(t, serveBoundary(t, nil), flags, "/bin/sh", "-c", "i=0; while [ $i -lt 1000 ]; do (true &) ; i=$((i+1)); done; echo ready; read x; echo done")
		_ = lines
		zombies := 0
		for _, pid := range append(children(t, c.Process.Pid), c.Process.Pid) {
			for _, child := range children(t, pid) {
				stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
				if strings.Contains(string(stat), ") Z ") {
					zombies++
				}
			}
		}
		if zombies > 3 { // those of this very moment
			t.Errorf("%d zombies", zombies)
		}
		ended(c)
	})
}

// TestGI7Guest: a copy over a running copy.
func TestGI7Guest(t *testing.T) {
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	place := t.TempDir()
	for range 2 {
		if out, err := exec.Command(filepath.Join(dir, "skep-init"), "copy", place).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		held, err := os.Open(filepath.Join(place, "skep-init")) // runs, for all that a file can tell
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = held.Close() }()
	}
	info, err := os.Stat(filepath.Join(place, "skep-init"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(place, ".*")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// TestGI8BothRoutes: the agent has our environment and three descriptors.
func TestGI8BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		out, code := guest(t, serveBoundary(t, nil), flags, "/bin/sh", "-c", "ls /proc/self/fd; echo; env")
		if code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		fds, env, _ := strings.Cut(out, "\n\n")
		if got := strings.Fields(fds); !slices.Equal(got, []string{"0", "1", "2", "3"}) { // 3 is ls's own
			t.Errorf("descriptors %q", got)
		}
		for line := range strings.Lines(env) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
			if _, ours := os.LookupEnv(name); !ours && !(flags[1] == "explicit" && strings.HasSuffix(strings.ToUpper(name), "_PROXY")) && name != "PWD" && name != "_" && name != "OLDPWD" && name != "SHLVL" {
				t.Errorf("%s is not of the environment that was given", line)
			}
		}
	})
}
