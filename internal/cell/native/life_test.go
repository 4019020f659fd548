package native_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest"
	"skep.dev/skep/internal/sys"
)

func send(t *testing.T, c *celltest.Cell, kind byte, data []byte) {
	t.Helper()
	frame := append([]byte{kind}, binary.LittleEndian.AppendUint32(nil, uint32(len(data)))...)
	if _, err := c.Client.Write(append(frame, data...)); err != nil {
		t.Fatal(err)
	}
}

// The agent's status comes back as it is, signals as 128 more (L19).
func TestExitStatusIsExact(t *testing.T) {
	d := celltest.Driver(t)
	for _, code := range []int{0, 1, 77, 124, 125, 126, 127, 128, 255} {
		c := celltest.New(t, "/bin/sh", "-c", fmt.Sprintf("exit %d", code))
		if out, r := c.RunOn(d); r.ExitCode != code || r.Failed != nil {
			t.Errorf("exit %d came back as %+v %s", code, r, out)
		}
	}
	for _, signal := range []string{"TERM", "KILL", "SEGV"} {
		c := celltest.New(t, "/bin/sh", "-c", "kill -"+signal+" $$; sleep 9")
		want := map[string]int{"TERM": 143, "KILL": 137, "SEGV": 139}[signal]
		if out, r := c.RunOn(d); r.ExitCode != want {
			t.Errorf("%s came back as %+v %s", signal, r, out)
		}
	}
}

func TestProgramThatCannotRunEndsTheCell(t *testing.T) {
	d := celltest.Driver(t)
	for argv, want := range map[string]int{"no-such-program": 127, "/etc/hostname": 126, "/no/such": 127} {
		c := celltest.New(t, argv)
		if _, r := c.RunOn(d); r.ExitCode != want || r.Failed == nil {
			t.Errorf("%s: %+v, want %d with its reason", argv, r, want)
		}
	}
}

// PID 1 reaps every orphan (P04): two thousand are no trouble for 64 processes.
func TestOrphansAreReaped(t *testing.T) {
	c := celltest.New(t, "/bin/bash", "-c", `for i in $(seq 500); do (sleep 0 & sleep 0 & sleep 0 & sleep 0 &); done; wait
		for i in $(seq 50); do z=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l); [ $z = 0 ] && break; sleep 0.05; done; echo zombies $z`)
	c.Spec.Limits.Pids = 64
	out, r := c.Run()
	if r.ExitCode != 0 || !strings.Contains(out, "zombies 0") {
		t.Errorf("%+v %s", r, out)
	}
}

// A fork bomb ends at its limit, without a cgroup too (L13).
func TestForksEndAtTheLimit(t *testing.T) {
	// Only what needs no fork counts them: there is none left.
	c := celltest.New(t, "/bin/sh", "-c", `(for i in $(seq 200); do sleep 60 & done) 2>/dev/null; set -- /proc/[0-9]*; echo $#`)
	c.Spec.Limits.Pids = 40
	out, _ := c.Run()
	var n int
	if _, err := fmt.Sscan(strings.TrimSpace(out), &n); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	if n < 20 || n > 41 {
		t.Errorf("%d processes ran under a limit of 40", n)
	}
}

// Killing the warden ends its cell, whatever the agent is doing (L20).
func TestKilledWardenTakesTheCell(t *testing.T) {
	c := celltest.New(t, "/bin/sh", "-c", "trap '' TERM HUP INT; echo up; sleep 1000 & wait; sleep 1000")
	r := c.Start(celltest.Driver(t))
	head := make([]byte, 8)
	if _, err := io.ReadFull(c.Client, head); err != nil {
		t.Fatal(err)
	}
	var processes []*os.File
	for _, pid := range childrenOf(t, warden(t, r)) {
		p, err := sys.OpenPidfd(pid)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		processes = append(processes, p)
	}
	if len(processes) == 0 {
		t.Fatal("the warden has no child")
	}
	if err := syscall.Kill(warden(t, r), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the cell outlived its warden")
	}
	for _, p := range processes {
		gone := make(chan error, 1)
		go func() { gone <- sys.WaitPidfd(p) }()
		select {
		case err := <-gone:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("a process of the cell is left")
		}
	}
	if r.Result().ExitCode != 125 {
		t.Errorf("%+v", r.Result())
	}
}

// A warden that does not hear is ended, and its cell with it: no end waits for it.
func TestDeafWardenIsEnded(t *testing.T) {
	c := celltest.New(t, "/bin/sh", "-c", "echo up; sleep 1000")
	r := c.Start(celltest.Driver(t))
	if _, err := io.ReadFull(c.Client, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(warden(t, r), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Done():
	case <-time.After(60 * time.Second):
		t.Fatal("the end waits for a warden that is stopped")
	}
}

func warden(t *testing.T, r cell.Running) int {
	t.Helper()
	p, ok := r.(interface{ WardenPid() int })
	if !ok {
		t.Fatal("the driver does not name the warden")
	}
	return p.WardenPid()
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Skipf("the kernel does not list children: %v", err)
	}
	var pids []int
	for _, f := range strings.Fields(string(text)) {
		var n int
		if _, err := fmt.Sscan(f, &n); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// A terminal behaves: size, resize, Ctrl-C, and a hang-up that ends the agent.
func TestTerminal(t *testing.T) {
	c := celltest.New(t, "/bin/bash", "-c", `stty size; trap 'stty size; echo got it; exit 5' INT; echo ready; while :; do sleep 0.05; done`)
	c.Spec.Terminal = &cell.Size{Rows: 33, Columns: 99}
	r := c.Start(celltest.Driver(t))
	var seen strings.Builder
	until := func(text string) {
		t.Helper()
		for !strings.Contains(seen.String(), text) {
			head := make([]byte, 5)
			if _, err := io.ReadFull(c.Client, head); err != nil {
				t.Fatalf("%v after %q", err, seen.String())
			}
			body := make([]byte, binary.LittleEndian.Uint32(head[1:]))
			if _, err := io.ReadFull(c.Client, body); err != nil {
				t.Fatal(err)
			}
			seen.Write(body)
		}
	}
	until("ready")
	send(t, c, 3, []byte{44, 0, 88, 0})
	send(t, c, 0, []byte{3})
	until("got it")
	<-r.Done()
	if r.Result().ExitCode != 5 || !strings.Contains(seen.String(), "33 99") || !strings.Contains(seen.String(), "44 88") {
		t.Errorf("%+v %q", r.Result(), seen.String())
	}
}

func TestHangUpEndsTheAgent(t *testing.T) {
	c := celltest.New(t, "/bin/sh", "-c", "while :; do sleep 0.05; done")
	c.Spec.Terminal = &cell.Size{Rows: 24, Columns: 80}
	r := c.Start(celltest.Driver(t))
	_ = c.Client.Close()
	select {
	case <-r.Done():
		if r.Result().ExitCode != 128+int(syscall.SIGHUP) {
			t.Errorf("%+v", r.Result())
		}
	case <-time.After(20 * time.Second):
		t.Error("the agent outlived its terminal")
	}
}

// A stopped agent is ended by a hang-up as any other.
func TestHangUpEndsAStoppedAgent(t *testing.T) {
	c := celltest.New(t, "/bin/sh", "-c", "kill -STOP $$; sleep 60")
	c.Spec.Terminal = &cell.Size{Rows: 24, Columns: 80}
	r := c.Start(celltest.Driver(t))
	head := make([]byte, 5)
	if _, err := io.ReadFull(c.Client, head); err != nil || head[0] != 6 {
		t.Fatalf("frame %v, %v", head, err)
	}
	_ = c.Client.Close()
	select {
	case <-r.Done():
	case <-time.After(20 * time.Second):
		t.Error("the agent outlived its terminal")
	}
}

// Standard input ends where the client says so, and without a client it is empty.
func TestStandardInput(t *testing.T) {
	c := celltest.New(t, "/usr/bin/wc", "-c")
	r := c.Start(celltest.Driver(t))
	for range 40 {
		send(t, c, 0, make([]byte, 64<<10))
	}
	send(t, c, 4, nil)
	out := c.Output()
	<-r.Done()
	if strings.TrimSpace(out) != fmt.Sprint(40*64<<10) {
		t.Errorf("%q", out)
	}
}

// A directory between a grant and a narrower rule cannot be renamed away (L8),
// and what is read-only below stays so; the same works where no rule stands.
func TestProtectedDirectoryStaysInPlace(t *testing.T) {
	c := celltest.New(t, "/bin/bash", "-c", `cd "$0"
		mv a b && mkdir a && echo moved-free
		mv .git g && echo MOVED-PROTECTED
		mv .git/hooks h && echo MOVED-HOOKS
		echo x > .git/hooks/new && echo WROTE-HOOKS
		echo x > .git/config2 && echo wrote-git; rm -rf .git; ls .git/hooks`)
	c.Spec.Argv = append(c.Spec.Argv, c.Work)
	for _, dir := range []string{".git/hooks", "a"} {
		if err := os.MkdirAll(filepath.Join(c.Work, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.Work, ".git/hooks/old"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Spec.Narrow = []cell.Narrow{
		{Path: filepath.Join(c.Work, ".git"), Kind: cell.MountPoint},
		{Path: filepath.Join(c.Work, ".git/hooks"), Kind: cell.ReadOnly},
	}
	out, _ := c.Run()
	for _, never := range []string{"MOVED", "WROTE"} {
		if strings.Contains(out, never) {
			t.Errorf("the wall is open: %s", out)
		}
	}
	// The directory a exists in the base: overlayfs answers EXDEV, and mv copies.
	for _, always := range []string{"moved-free", "wrote-git", "old\n"} {
		if !strings.Contains(out, always) {
			t.Errorf("%s is missing: %s", always, out)
		}
	}
	if _, err := os.Stat(filepath.Join(c.Work, ".git/hooks/old")); err != nil {
		t.Errorf("the host's tree changed: %v", err)
	}
}

// Fifty cells at once on one worker, and nothing of them is left (F14, R04).
func TestManyCellsLeaveNothing(t *testing.T) {
	d := celltest.Driver(t)
	results := make(chan cell.Result, 50)
	for i := range cap(results) {
		c := celltest.New(t, "/bin/true")
		c.Spec.ID = fmt.Sprintf("abcdefghijklmnopqrstuvwx%c%c", 'a'+i/26, 'a'+i%26)
		r := c.Start(d)
		go func() {
			<-r.Done()
			results <- r.Result()
		}()
	}
	for range cap(results) {
		if r := <-results; r.ExitCode != 0 || r.Failed != nil {
			t.Errorf("%+v", r)
		}
	}
}

// What is granted below what is hidden is there, and the rest of it is not (L8b).
func TestGrantBelowAHiddenDirectory(t *testing.T) {
	c := celltest.New(t, "/bin/sh", "-c", `cd "$0"; cat hidden/open/f hidden/one && echo fine; ls hidden hidden/open; cat hidden/secret`)
	c.Spec.Argv = append(c.Spec.Argv, c.Work)
	hidden := filepath.Join(c.Work, "hidden")
	if err := os.MkdirAll(filepath.Join(hidden, "open"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"open/f", "one", "secret"} {
		if err := os.WriteFile(filepath.Join(hidden, name), []byte("content of "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c.ReadOnly(filepath.Join(hidden, "open"))
	c.ReadOnly(filepath.Join(hidden, "one"))
	c.Spec.Narrow = []cell.Narrow{{Path: hidden, Kind: cell.Hidden}}
	out, _ := c.Run()
	if !strings.Contains(out, "content of open/f\ncontent of one\nfine") || strings.Contains(out, "content of secret") {
		t.Errorf("%s", out)
	}
}

// Whoever takes the warden's socket from us has no cell in his hand (L20a).
func TestWardenTakenOverEndsTheCell(t *testing.T) {
	c := celltest.New(t, "/bin/sleep", "1000")
	r := c.Start(celltest.Driver(t))
	other, err := sys.ConnectUnix(filepath.Join(c.Dir, "w"), sys.Seqpacket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	select {
	case <-r.Done():
		if r.Result().ExitCode != 125 || r.Result().Failed == nil {
			t.Errorf("%+v", r.Result())
		}
	case <-time.After(20 * time.Second):
		t.Error("the cell goes on without us")
	}
}

// TestStoppedAgentGoesOn: an agent that is stopped, by the key on its terminal or by a
// signal, stays so until its client says that it goes on (L18).
func TestStoppedAgentGoesOn(t *testing.T) {
	const stopped = 6
	for name, terminal := range map[string]*cell.Size{"terminal": {Rows: 24, Columns: 80}, "pipes": nil} {
		t.Run(name, func(t *testing.T) {
			script := "echo ready; kill -TSTP $$; echo went on"
			if terminal != nil {
				script = "echo ready; read key; echo went on"
			}
			c := celltest.New(t, "/bin/sh", "-c", script)
			c.Spec.Terminal = terminal
			r := c.Start(celltest.Driver(t))
			_ = c.Client.SetReadDeadline(time.Now().Add(20 * time.Second))
			var seen strings.Builder
			next := func() (kind byte) {
				t.Helper()
				head := make([]byte, 5)
				if _, err := io.ReadFull(c.Client, head); err != nil {
					t.Fatalf("%v after %q", err, seen.String())
				}
				body := make([]byte, binary.LittleEndian.Uint32(head[1:]))
				if _, err := io.ReadFull(c.Client, body); err != nil {
					t.Fatal(err)
				}
				seen.Write(body)
				return head[0]
			}
			for !strings.Contains(seen.String(), "ready") {
				next()
			}
			if terminal != nil {
				send(t, c, 0, []byte{'Z' & 0x1f})
			}
			for next() != stopped {
			}
			if strings.Contains(seen.String(), "went on") {
				t.Errorf("it went on: %q", seen.String())
			}
			send(t, c, stopped, nil)
			if terminal != nil {
				send(t, c, 0, []byte("key\n"))
			}
			for !strings.Contains(seen.String(), "went on") {
				next()
			}
			<-r.Done()
		})
	}
}
