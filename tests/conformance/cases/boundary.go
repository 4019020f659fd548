package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Setting is how a boundary is started. The zero one is that of section 21.
type Setting struct {
	Allow  string   // rules of the bundle, one line each; empty: the setting's own
	Flags  []string // more of them
	Socket string   // empty: one of the case's own
	TCP    bool     // on a port of loopback instead of a socket

	Serves  string // of the bundle; empty: it serves nothing
	Ingress bool   // with a socket for callers
}

// Boundary is one that was started.
type Boundary struct {
	b       *Bench
	at      string // socket, or host:port
	network string
	bundle  string
	records string
	serves  string
	ingress string // where callers come to
	output  *bytes.Buffer
	process *exec.Cmd
	ended   chan struct{}
}

// rules of the setting: P is the port of the echo servers.
const rules = `    - {id: ip4, ip: 127.0.0.1, ports: [P]}
    - {id: ip6, cidr: "::1/128", ports: [P]}
    - {id: name, name: ok.test, ports: [P], resolve: [127.0.0.1]}
`

// Start starts a boundary and waits until it listens.
func (b *Bench) Start(s Setting) *Boundary {
	b.Helper()
	x := b.begin(s)
	select {
	case <-x.ended:
		b.Fatalf("the boundary did not start: %s", x.output)
	case <-x.listens():
	}
	return x
}

// Refuses starts a boundary that has to end at once, and gives what it said.
func (b *Bench) Refuses(s Setting) string {
	b.Helper()
	x := b.begin(s)
	select {
	case <-x.ended:
	case <-time.After(10 * time.Second):
		b.Errorf("it started")
	}
	if x.process.ProcessState.Success() {
		b.Errorf("it ended as if all were well: %s", x.output)
	}
	return x.output.String()
}

func (b *Bench) begin(s Setting) *Boundary {
	b.Helper()
	b.count++
	dir := filepath.Join(b.Dir, strconv.Itoa(b.count))
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatalf("make a directory: %v", err)
	}
	x := &Boundary{b: b, network: "unix", at: filepath.Join(dir, "s"), bundle: filepath.Join(dir, "bundle.yaml"), records: filepath.Join(dir, "records"), output: &bytes.Buffer{}, ended: make(chan struct{})}
	if s.Socket != "" {
		x.at = s.Socket
	}
	x.serves = s.Serves
	x.Write(s.Allow)
	ceiling := filepath.Join(dir, "ceiling.yaml")
	x.file(ceiling, "open: [{cidr: 127.0.0.0/8}, {cidr: \"::1/128\"}]\n")
	where := []string{"--socket", x.at}
	if s.TCP {
		x.network, x.at = "tcp", b.freePort()
		where = []string{"--insecure-tcp-listener", x.at}
	}
	if s.Ingress {
		x.ingress = filepath.Join(dir, "in", "s")
		where = append(where, "--ingress-socket", x.ingress)
	}
	args := append(append(append([]string{"run"}, where...), "--bundle", x.bundle, "--ceiling", ceiling, "--records", x.records, "--insecure-unverified-bundle"), s.Flags...)
	x.process = exec.Command(b.Program[0], append(append([]string(nil), b.Program[1:]...), args...)...)
	x.process.Stdout, x.process.Stderr = x.output, x.output
	x.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := x.process.Start(); err != nil {
		b.Fatalf("start the boundary: %v", err)
	}
	go func() { _ = x.process.Wait(); close(x.ended) }()
	b.Cleanup(x.Stop)
	return x
}

// Write makes a bundle of some rules.
func (x *Boundary) Write(allow string) {
	if allow == "" {
		allow = rules
	}
	text := "version: v1\nagent: {id: cell.example}\negress:\n  allow:\n" + x.b.with(allow)
	if x.serves != "" {
		text += "serves: " + x.serves + "\n"
	}
	x.file(x.bundle, text)
}

func (x *Boundary) file(path, text string) {
	x.b.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		x.b.Fatalf("write %s: %v", path, err)
	}
}

// Reload has it read its bundle again.
func (x *Boundary) Reload() { _ = x.process.Process.Signal(syscall.SIGHUP) }

// Halt stops the process that was started, and is back when none of its threads runs.
func (x *Boundary) Halt() {
	x.b.Helper()
	x.signal(syscall.SIGSTOP)
	tasks := fmt.Sprintf("/proc/%d/task", x.process.Process.Pid)
	stopped := func() bool {
		threads, err := os.ReadDir(tasks)
		for _, t := range threads {
			text, gone := os.ReadFile(filepath.Join(tasks, t.Name(), "stat"))
			_, state, _ := strings.Cut(string(text), ") ")
			if gone == nil && !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return err == nil
	}
	if !await(answerTime, stopped) {
		x.b.Fatalf("the boundary does not stop")
	}
}

// Resume lets it run again.
func (x *Boundary) Resume() { x.signal(syscall.SIGCONT) }

func (x *Boundary) signal(s os.Signal) { _ = x.process.Process.Signal(s) }

// Kill ends it at once, by a signal that it cannot catch.
func (x *Boundary) Kill() {
	x.signal(syscall.SIGKILL)
	<-x.ended
}

// Stop ends it, and is back when it has ended.
func (x *Boundary) Stop() {
	x.Resume()
	x.signal(syscall.SIGTERM)
	select {
	case <-x.ended:
	case <-time.After(15 * time.Second):
		x.b.Errorf("the boundary did not end in 15 s")
		x.signal(syscall.SIGKILL)
		<-x.ended
	}
}

// listens is closed once a connection is accepted.
func (x *Boundary) listens() <-chan struct{} {
	up := make(chan struct{})
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if c, err := net.Dial(x.network, x.at); err == nil {
				_ = c.Close()
				close(up)
				return
			}
			select {
			case <-x.ended:
				return
			default:
			}
		}
	}()
	return up
}

// with writes the port of the echo servers in the place of each P that stands alone.
func (b *Bench) with(text string) string {
	p := strconv.Itoa(int(b.Port))
	return strings.NewReplacer(":P", ":"+p, "[P]", "["+p+"]", "/P/", "/"+p+"/").Replace(text)
}

func (b *Bench) freePort() string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatalf("find a port: %v", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Record is one line of the records, as far as a case looks at it (B191).
type Record struct {
	Kind, Sandbox, Policy, Wire, Transport, Direction, Destination, Address, Decision, Reason, Rule, Agent, Peer string
	Generation                                                                                                   uint64
	Bytes                                                                                                        struct{ Up, Down uint64 }
}

// Records are all that are written.
func (x *Boundary) Records() (out []Record) {
	x.b.Helper()
	text, err := os.ReadFile(x.records)
	if err != nil {
		x.b.Fatalf("read the records: %v", err)
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // half written
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			x.b.Fatalf("a record is no JSON: %q", line)
		}
		out = append(out, r)
	}
	return out
}

// Await waits for a record that is so.
func (x *Boundary) Await(what string, is func(Record) bool) (found Record) {
	x.b.Helper()
	ok := await(15*time.Second, func() bool {
		for _, r := range x.Records() {
			if is(r) {
				found = r
				return true
			}
		}
		return false
	})
	if !ok {
		x.b.Fatalf("no record %s: %s", what, fmt.Sprintf("%+v", x.Records()))
	}
	return found
}
