package boundary

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/journey"
)

const churnArgument = "churn"

// churner opens long flows, and short ones beside them.
type churner struct {
	dial func() (net.Conn, error)
	long []net.Conn
	// again counts flows for which there was no room at first.
	again atomic.Int64
}

// open opens n flows that stay.
func (c *churner) open(n int) error {
	for range n {
		conn, err := c.dial()
		if err != nil {
			return fmt.Errorf("long flow %d: %w", len(c.long), err)
		}
		c.long = append(c.long, conn)
	}
	return c.alive()
}

// alive has each long flow carry a word.
func (c *churner) alive() error {
	for i, conn := range c.long {
		if err := greet(conn); err != nil {
			return fmt.Errorf("long flow %d: %w", i, err)
		}
	}
	return nil
}

func greet(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	back := make([]byte, 4)
	if _, err := io.WriteString(c, "word"); err != nil {
		return err
	}
	_, err := io.ReadFull(c, back)
	if err == nil && string(back) != "word" {
		err = fmt.Errorf("got %q", back)
	}
	return err
}

// short makes n flows, some at a time, each with a word; every third is reset. One for which
// there is no room is tried again.
func (c *churner) short(n int) error {
	const atOnce = 8
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, atOnce)
	for i := range atOnce {
		all.Go(func() {
			for k := next.Add(1); k <= int64(n) && errs[i] == nil; k = next.Add(1) {
				err := c.once(k%3 == 0)
				// One whose end is not recorded yet keeps its place: beside 1,000 long ones there are few.
				for begin := time.Now(); err != nil && time.Since(begin) < patience; err = c.once(k%3 == 0) {
					c.again.Add(1)
					<-time.After(time.Millisecond)
				}
				if err != nil {
					errs[i] = fmt.Errorf("short flow %d: %w", k, err)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// once makes one flow with a word.
func (c *churner) once(reset bool) error {
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if t, ok := conn.(*net.TCPConn); ok && reset {
		_ = t.SetLinger(0)
	}
	return greet(conn)
}

// churn is the program in the cell: it obeys one number a line.
func churn(at, long string) int {
	n, err := strconv.Atoi(long)
	if err != nil {
		return 2
	}
	c := churner{dial: func() (net.Conn, error) { return net.DialTimeout("tcp", at, patience) }}
	fmt.Println("open", c.open(n))
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		n, err := strconv.Atoi(orders.Text())
		if err != nil {
			return 2
		}
		fmt.Println("short", errors.Join(c.short(n), c.alive()))
	}
	return 0
}

// measure is what must not grow with the number of flows that have been.
type measure struct{ descriptors, threads, kib int }

func (m measure) String() string {
	return fmt.Sprintf("%d descriptors, %d threads, %d KiB", m.descriptors, m.threads, m.kib)
}

// process is one of the host's.
type process struct {
	name        string
	pid, parent int
	measure
}

// processes are all that there are, by number.
func processes(t *testing.T) map[int]process {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]process{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		p := process{}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			value = strings.TrimSpace(value)
			number, _ := strconv.Atoi(strings.TrimSuffix(value, " kB"))
			switch key {
			case "Name":
				p.name = value
			case "Pid":
				p.pid = number
			case "PPid":
				p.parent = number
			case "VmRSS":
				p.kib = number
			case "Threads":
				p.threads = number
			}
		}
		if open, err := os.ReadDir(filepath.Join(filepath.Dir(file), "fd")); err == nil {
			p.descriptors = len(open) // else it is closed to us: root's run sees it
		}
		all[p.pid] = p
	}
	return all
}

// below are the programs under some processes, these included, by name.
func below(t *testing.T, roots ...int) map[string]measure {
	t.Helper()
	all, found := processes(t), map[string]measure{}
	for _, p := range all {
		for up, ok := p, true; ok; up, ok = all[up.parent] {
			if slices.Contains(roots, up.pid) {
				m := found[p.name]
				found[p.name] = measure{m.descriptors + p.descriptors, m.threads + p.threads, m.kib + p.kib}
				break
			}
		}
	}
	return found
}

// worker is the number of the one that built the cell in which the prober runs.
func (h *host) worker() int {
	h.t.Helper()
	all := processes(h.t)
	for pid := range all {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if !strings.HasPrefix(string(line), h.prober+"\x00") {
			continue
		}
		for up, ok := all[pid], true; ok; up, ok = all[up.parent] {
			if up.name == "skep-worker" {
				return up.pid
			}
		}
	}
	h.t.Fatal("the cell's worker is not found")
	return 0
}

// flat demands that programs hold no more after many flows than before them. A goroutine that
// stayed behind for each flow would take more than the slack.
func flat(t *testing.T, before, after map[string]measure, flows int, names ...string) {
	t.Helper()
	const slack = 6 << 10 // KiB: heaps breathe, and a stack has 2 at least
	for _, name := range names {
		b, a := before[name], after[name]
		t.Logf("%s: before %v; after %d flows %v", name, b, flows, a)
		if b.kib == 0 || a.kib == 0 {
			t.Errorf("%s is not there", name)
		}
		if a.kib > b.kib+slack || a.descriptors > b.descriptors+16 || a.threads > b.threads+4 {
			t.Errorf("%s has grown", name)
		}
	}
}

// amounts are those of make test, or the whole ones of make soak.
func amounts() (long, short int) {
	if os.Getenv("SKEP_SOAK") != "" {
		return 1000, 100_000
	}
	return 200, 4000
}

// TestFlowsLeaveNothing is a day in small on the native path: many short flows beside long ones
// leave box and skepd as they were, and every long one lives.
func TestFlowsLeaveNothing(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		long, short := amounts()
		lab.Quiet(public4 + ":7080")
		h := open(t, lab, "net: [{ip: "+public4+", ports: [7080]}]\n")
		r := h.begin(churnArgument, public4+":7080", strconv.Itoa(long))
		expect := func(want string) {
			t.Helper()
			if got := r.line(t); got != want {
				t.Fatalf("the cell says %q", got)
			}
		}
		order := func(n int) {
			t.Helper()
			if _, err := fmt.Fprintln(r.in, n); err != nil {
				t.Fatal(err)
			}
			expect("short <nil>")
		}
		expect("open <nil>")
		order(short / 2) // what fills once: pools, buffers, the ledger's
		skepd, worker := journey.Daemon(h.Dir), h.worker()
		before := below(t, skepd, worker)
		order(short)
		flat(t, before, below(t, skepd, worker), short, "skepd", "skep-box")
		_ = r.in.Close()
		_ = r.cmd.Wait()
	})
}

// TestTunnelsLeaveNothing is the same over a Unix socket. Goroutines are counted where they can
// be, in internal/box/listener's TestNothingIsLeft.
func TestTunnelsLeaveNothing(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		long, short := amounts()
		lab.Quiet(public4 + ":7080")
		pid, socket := begunTunnel(t, lab)
		c := churner{dial: func() (net.Conn, error) { return tunnel(socket, public4+":7080") }}
		if err := errors.Join(c.open(long), c.short(short/2)); err != nil {
			t.Fatal(err)
		}
		before := below(t, pid)
		defer func() { t.Logf("%d times there was no room", c.again.Load()) }()
		if err := errors.Join(c.short(short), c.alive()); err != nil {
			t.Fatal(err)
		}
		flat(t, before, below(t, pid), short, "skep-connector", "skep-box")
	})
}

// begunTunnel is a boundary at a Unix socket that allows public4:7080, and the process above it.
func begunTunnel(t *testing.T, lab *testlab.Lab) (pid int, socket string) {
	t.Helper()
	dir := filepath.Join(lab.Dir(), "tunnel")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(dir, "bundle.yaml")
	socket = filepath.Join(dir, "s")
	text := "version: v1\nagent: {id: flat.example}\negress: {allow: [{ip: " + public4 + ", ports: [7080]}]}\n"
	if err := os.WriteFile(bundle, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := lab.Program("skep-box", "run", "--socket", socket, "--bundle", bundle, "--insecure-unverified-bundle", "--records", filepath.Join(dir, "records"))
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "listening at ") {
		t.Log(lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	return cmd.Process.Pid, socket
}

// tunnel opens one by CONNECT.
func tunnel(socket, to string) (net.Conn, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", to); err != nil {
		return nil, err
	}
	const good = "HTTP/1.1 200 OK\r\n\r\n"
	answer := make([]byte, len(good))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != good {
		_ = c.Close()
		return nil, errors.Join(fmt.Errorf("answered %q", answer), err)
	}
	return c, nil
}

// longTime is a real length of time in make soak, else a short one.
func longTime(soak, short time.Duration) time.Duration {
	if os.Getenv("SKEP_SOAK") != "" {
		return soak
	}
	return short
}

// TestN06LongTunnel is TestN06LongStream over a Unix socket.
func TestN06LongTunnel(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		gap := longTime(30*time.Second, 100*time.Millisecond)
		lab.HTTP(public4+":7080", eventServer(20, gap))
		_, socket := begunTunnel(t, lab)
		c, err := tunnel(socket, public4+":7080")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(patience + 20*gap))
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: events.test\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(c)
		if n := strings.Count(string(all), "data:"); n != 20 || err != nil {
			t.Errorf("%d events, %v", n, err)
		}
	})
}
