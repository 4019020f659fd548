package start

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// realBoundary is Skep's own at the other end of the channel: `skep-box run`.
type realBoundary struct {
	t            *testing.T
	dir, records string
	flags        []string
	process      *exec.Cmd
	ended        chan struct{}
	said         *bytes.Buffer
}

// serveReal starts it under some rules of a bundle. The test is skipped where it is not built.
func serveReal(t *testing.T, rules string, flags ...string) (*testBoundary, *realBoundary) {
	t.Helper()
	dir, err := os.MkdirTemp("", "g")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &realBoundary{t: t, dir: dir, records: filepath.Join(dir, "records"), flags: flags}
	r.write("ceiling", "open: [{cidr: 127.0.0.0/8}]\n")
	r.rules(rules)
	r.start()
	return &testBoundary{t: t, path: r.socket()}, r
}

func (r *realBoundary) socket() string { return filepath.Join(r.dir, "c", "s") }

func (r *realBoundary) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// rules writes the bundle, which is read at the next start.
func (r *realBoundary) rules(rules string) {
	r.t.Helper()
	r.write("bundle", "version: v1\nagent: {id: guest.example}\negress:\n  allow:\n"+rules)
}

// start starts the program and waits until it listens.
func (r *realBoundary) start() {
	r.t.Helper()
	bin := os.Getenv("SKEP_BIN")
	if bin == "" {
		bin = filepath.Join("..", "..", "bin")
	}
	box, err := filepath.Abs(filepath.Join(bin, "skep-box"))
	if err == nil {
		_, err = os.Stat(filepath.Join(filepath.Dir(box), "skep-connector"))
	}
	if err != nil {
		r.t.Skip("skep-box and skep-connector are not built: run make build")
	}
	args := append([]string{"run", "--socket", r.socket(), "--bundle", filepath.Join(r.dir, "bundle"), "--ceiling", filepath.Join(r.dir, "ceiling"),
		"--records", r.records, "--insecure-unverified-bundle", "--udp"}, r.flags...)
	r.process, r.said, r.ended = exec.Command(box, args...), &bytes.Buffer{}, make(chan struct{})
	r.process.Stderr = r.said
	if err := r.process.Start(); err != nil {
		r.t.Fatal(err)
	}
	c, ended := r.process, r.ended
	go func() { _ = c.Wait(); close(ended) }()
	r.t.Cleanup(func() { _ = c.Process.Signal(syscall.SIGTERM); <-ended })
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		if conn, err := net.Dial("unix", r.socket()); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-ended:
			r.t.Fatal(r.said.String())
		default:
		}
	}
}

// end sends the program a signal, and is back when it has gone.
func (r *realBoundary) end(s syscall.Signal) {
	_ = r.process.Process.Signal(s)
	<-r.ended
}

// reasons are the reasons of what was decided, by destination; empty for what opened.
func (r *realBoundary) reasons() map[string]string {
	r.t.Helper()
	text, err := os.ReadFile(r.records)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]string{}
	for line := range bytes.Lines(text) {
		var one struct{ Kind, Transport, Destination, Reason string }
		if err := json.Unmarshal(line, &one); err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		if one.Kind == "intent" || one.Kind == "denied" || one.Reason != "" {
			out[one.Transport+" "+one.Destination] = one.Reason
		}
	}
	return out
}

// TestBC47HoldGuest: a SYN has no answer while a person is asked, and the client's own tries
// join it; then it opens, or is refused (G51).
func TestBC47HoldGuest(t *testing.T) {
	_, tcp, _ := net.SplitHostPort(echo(t))
	rule := fmt.Sprintf("    - {name: ok.test, ports: [%s], resolve: [127.0.0.1]", tcp)
	b, records := serveReal(t, rule+", ask: true, hold: 60s}\n    - {name: short.test, ports: [443], ask: true, hold: 1s}\n")
	began := time.Now()
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		<-time.After(2 * time.Second) // in which a SYN comes again
		records.rules(rule + "}\n    - {name: short.test, ports: [443], ask: true, hold: 1s}\n")
		_ = records.process.Process.Signal(syscall.SIGHUP)
	}()
	expect(t, probe(t, b, nil, "tcp=ok.test:"+tcp, "tcp=short.test:443"), map[string]string{"tcp=ok.test:" + tcp: "hello", "tcp=short.test:443": "connection refused"})
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("it took %s: nothing was held", took)
	}
	<-opened
	if got := records.reasons(); got["tcp short.test:443"] != "approval-needed" || got["tcp ok.test:"+tcp] != "" {
		t.Errorf("%v", got)
	}
}

// TestRealBoundaryGuest: the cases BG-1, BG-2, BG-4, BG-8 and BG-17 of the guest path, with
// Skep's own boundary in the place of a test's.
func TestRealBoundaryGuest(t *testing.T) {
	_, tcp, _ := net.SplitHostPort(echo(t))
	_, udp, _ := net.SplitHostPort(echoUDP(t))
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, closed, _ := net.SplitHostPort(gone.Addr().String())
	_ = gone.Close()
	b, records := serveReal(t, fmt.Sprintf("    - {name: ok.test, ports: [%s, %s], resolve: [127.0.0.1]}\n    - {name: udp.test, ports: [%s], transports: [udp], resolve: [127.0.0.1]}\n", tcp, closed, udp))
	expect(t, probe(t, b, []string{"--udp"}, "tcp=ok.test:"+tcp, "bulk=ok.test:"+tcp, "tcp=denied.test:"+tcp, "tcp=8.8.8.8:"+tcp, "tcp=ok.test:"+closed, "udp=udp.test:"+udp), map[string]string{
		"tcp=ok.test:" + tcp: "hello", "bulk=ok.test:" + tcp: strconv.Itoa(64 << 20), "udp=udp.test:" + udp: "hello",
		"tcp=denied.test:" + tcp: "connection refused", "tcp=8.8.8.8:" + tcp: "connection refused", "tcp=ok.test:" + closed: "connection refused",
	})
	got := records.reasons()
	for destination, reason := range map[string]string{
		"tcp ok.test:" + tcp: "", "udp udp.test:" + udp: "", "tcp denied.test:" + tcp: "not-on-allowlist", "tcp 8.8.8.8:" + tcp: "ip-not-on-allowlist",
		"tcp ok.test:" + closed: "dial-failed",
	} {
		if why, ok := got[destination]; !ok || why != reason {
			t.Errorf("%s: %q, %v; want %q", destination, why, ok, reason)
		}
	}
}
