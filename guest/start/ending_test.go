package start

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
)

// allow is a rule for one name that is loopback.
func allow(name, port string) string {
	return fmt.Sprintf("    - {name: %s, ports: [%s], resolve: [127.0.0.1]}\n", name, port)
}

// rest reads what a prober still says, until it ends.
func rest(lines *bufio.Scanner) map[string]string {
	var out strings.Builder
	for lines.Scan() {
		out.WriteString(lines.Text() + "\n")
	}
	return read(out.String())
}

// ended tells whether a flow is over, by a reset where the route can say so.
func over(how string, flags []string) bool {
	return how == "connection reset by peer" || flags[1] == "explicit" && how == "end"
}

// TestBG15BothRoutes: the box is killed. What is open ends, what is new is refused, and
// there is no other path.
func TestBG15BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		_, port, _ := net.SplitHostPort(echo(t))
		b, box := serveReal(t, allow("ok.test", port))
		_, lines, _ := running(t, b, flags, prober(t), "stream=ok.test:"+port, "reach=ok.test:"+port, "tcp=127.0.0.1:"+port)
		box.end(syscall.SIGKILL)
		got := rest(lines)
		if !over(got["stream=ok.test:"+port], flags) || got["reach=ok.test:"+port] == "hello" || got["reach=ok.test:"+port] == "" || got["tcp=127.0.0.1:"+port] != "connection refused" {
			t.Errorf("%q", got)
		}
		if flags[1] == "tun" && got["reach=ok.test:"+port] != "connection refused" {
			t.Errorf("%q", got)
		}
	})
}

// bulkBytes go each way; in make soak 1 GiB.
func bulkBytes() int {
	if os.Getenv("SKEP_SOAK") != "" {
		return 1 << 30
	}
	return 64 << 20
}

// TestBG17BothRoutes: what goes each way is exact, one direction ends alone, and a reset of
// the destination is one for the agent.
func TestBG17BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		_, port, _ := net.SplitHostPort(echo(t))
		resets, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resets.Close() })
		go func() {
			for {
				c, err := resets.Accept()
				if err != nil {
					return
				}
				_, _ = io.CopyN(c, c, 1)
				_ = c.(*net.TCPConn).SetLinger(0)
				_ = c.Close()
			}
		}()
		_, reset, _ := net.SplitHostPort(resets.Addr().String())
		b, _ := serveReal(t, allow("ok.test", port)+allow("reset.test", reset))
		bulk := fmt.Sprintf("exact=%d ok.test:%s", bulkBytes(), port)
		got := probe(t, b, flags, bulk, "stream=reset.test:"+reset, "abort=ok.test:"+port, "reach=ok.test:"+port)
		expect(t, got, map[string]string{bulk: "exact", "abort=ok.test:" + port: "", "reach=ok.test:" + port: "hello"})
		if !over(got["stream=reset.test:"+reset], flags) {
			t.Errorf("%q", got)
		}
	})
}

// TestBG20BothRoutes: the agent starts after the boundary has answered, and not before.
func TestBG20BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		marker := filepath.Join(t.TempDir(), "started")
		path := filepath.Join(t.TempDir(), "s")
		c := command(t, &testBoundary{path: path}, append(flags, "--ready", "30s"), "/bin/sh", "-c", "echo > "+marker)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for len(children(t, c.Process.Pid)) == 0 { // it runs inside, and asks for the boundary
			if c.ProcessState != nil {
				t.Fatal("it ended")
			}
		}
		// Somebody who does not listen is no answer, either.
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		_ = dead.Close()
		if _, err := os.Stat(marker); err == nil {
			t.Error("the agent started before there was a boundary")
		}
		_ = os.Remove(path)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if code := ended(c); code != 0 {
			t.Errorf("it ended with %d", code)
		}
		if _, err := os.Stat(marker); err != nil {
			t.Error("the agent did not start")
		}
	})
}

// TestBG22BG23BothRoutes: a boundary that is revoked ends its flows and its socket before
// it is gone, another one's stay; a successor on the same path decides by its own policy,
// and takes no flow over.
func TestBG22BG23BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		_, port, _ := net.SplitHostPort(echo(t))
		b, box := serveReal(t, allow("first.test", port))
		other, _ := serveReal(t, allow("ok.test", port))
		next := filepath.Join(t.TempDir(), "next")
		_, lines, _ := running(t, b, flags, prober(t), "stream=first.test:"+port, "wait="+next, "reach=first.test:"+port, "reach=second.test:"+port)
		_, theirs, _ := running(t, other, flags, prober(t), "wait="+next, "reach=ok.test:"+port)
		box.end(syscall.SIGTERM)
		if _, err := os.Lstat(box.socket()); !os.IsNotExist(err) {
			t.Errorf("the old socket: %v", err)
		}
		first := box.lines()
		if last := first[len(first)-2]; last["reason"] != flow.Revoked.Token() || last["kind"] != "outcome" {
			t.Errorf("it was gone before the flow's end was recorded: %v", first)
		}
		box.rules(allow("second.test", port))
		box.flags = []string{"--generation", "2"}
		box.start()
		if err := os.WriteFile(next, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		got := rest(lines)
		if !over(got["stream=first.test:"+port], flags) || got["reach=first.test:"+port] == "hello" || got["reach=second.test:"+port] != "hello" {
			t.Errorf("%q", got)
		}
		if got := rest(theirs); got["reach=ok.test:"+port] != "hello" {
			t.Errorf("another cell: %q", got)
		}
		for _, r := range box.lines()[len(first):] {
			if r["generation"] != 2.0 || r["kind"] != "attached" && r["policy"] == first[1]["policy"] {
				t.Errorf("%v", r)
			}
		}
	})
}

// lines are the records, as they are written.
func (r *realBoundary) lines() (out []map[string]any) {
	r.t.Helper()
	text, err := os.ReadFile(r.records)
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		one := map[string]any{}
		if err := json.Unmarshal(line, &one); err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		out = append(out, one)
	}
	return out
}

// TestBG24BothRoutes: skep-init is killed. What outlives it has no path, by name or address.
func TestBG24BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		dir := t.TempDir()
		b := serveBoundary(t, map[string]string{"ok.test:7080": echo(t), "8.8.8.8:7080": echo(t)})
		out, next := filepath.Join(dir, "out"), filepath.Join(dir, "next")
		left := fmt.Sprintf("(setsid %s wait=%s ifaces= reach=ok.test:7080 tcp=8.8.8.8:7080 tcp=100.64.0.1:7080 udp=8.8.8.8:53 > %s 2>/dev/null; mv %s %[3]s.done) 2>/dev/null & while ! grep -q ready %[3]s 2>/dev/null; do sleep 0.01; done; echo ready; exec sleep 60", prober(t), next, out, out)
		c, _, _ := running(t, b, flags, "/bin/sh", "-c", left)
		inner := children(t, c.Process.Pid)
		if len(inner) != 1 {
			t.Fatalf("skep-init has %d children", len(inner))
		}
		if err := syscall.Kill(inner[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ended(c)
		before := len(b.requests())
		if err := os.WriteFile(next, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); ; {
			if _, err := os.Stat(out + ".done"); err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatal("what was left does not end")
			}
		}
		text, _ := os.ReadFile(out + ".done")
		got := read(string(text))
		if got["ifaces="] != "lo" {
			t.Errorf("interfaces %q", got["ifaces="])
		}
		for how, what := range got {
			if what == "hello" {
				t.Errorf("%s: %s", how, what)
			}
		}
		if now := b.requests(); len(now) != before {
			t.Errorf("the boundary was asked for %q", now[before:])
		}
	})
}

// TestGI9Guest: what a restore from memory is to skep-init, which is that its channels have
// died: a reset for the flow, and the old address keeps its name.
func TestGI9Guest(t *testing.T) {
	_, port, _ := net.SplitHostPort(echo(t))
	b, box := serveReal(t, allow("ok.test", port))
	next := filepath.Join(t.TempDir(), "next")
	_, lines, _ := running(t, b, nil, prober(t), "stream=ok.test:"+port, "wait="+next, "tcp=100.64.0.1:"+port, "lookup=ok.test")
	box.end(syscall.SIGKILL)
	box.start()
	if err := os.WriteFile(next, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := rest(lines)
	expect(t, got, map[string]string{"stream=ok.test:" + port: "connection reset by peer", "tcp=100.64.0.1:" + port: "hello"})
	if !strings.Contains(got["lookup=ok.test"], "100.64.0.1") {
		t.Errorf("%q", got)
	}
}
