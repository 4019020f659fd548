package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	connectorv1 "skep.dev/skep/api/connector/v1"
	"skep.dev/skep/api/connector/v1/connectorv1connect"
	"skep.dev/skep/internal/testlab"
	"skep.dev/skep/tests/journey"
)

// recording is a person whose skepd keeps the records of a connector, with an echo server.
type recording struct {
	*journey.Person
	t         *testing.T
	port      string
	call      connectorv1connect.ConnectorServiceClient
	connector *exec.Cmd
	said      *bytes.Buffer
	ended     chan error
}

func newRecording(t *testing.T) *recording {
	t.Helper()
	testlab.Built(t, "skep-connector")
	lab := testlab.New(t)
	r := &recording{Person: journey.At(t, lab.Dir(), lab.Dir()), t: t}
	r.Beside("ceiling.yaml", "open: [{cidr: 127.0.0.0/8}]\n")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	_, r.port, _ = net.SplitHostPort(l.Addr().String())
	r.Skep("ps") // starts skepd
	return r
}

// start starts a connector and waits until it answers.
func (r *recording) start() {
	r.t.Helper()
	r.connector = exec.Command(testlab.Built(r.t, "skep-box"), "serve", "--ledger", "--ceiling", filepath.Join(r.Dir, "ceiling.yaml"), "--insecure-unverified-bundle")
	r.said, r.ended = &bytes.Buffer{}, make(chan error, 1)
	r.connector.Env, r.connector.Stderr = r.Env, r.said
	if err := r.connector.Start(); err != nil {
		r.t.Fatal(err)
	}
	c, ended := r.connector, r.ended
	go func() { ended <- c.Wait(); close(ended) }()
	r.t.Cleanup(func() { _ = c.Process.Signal(syscall.SIGTERM); <-ended })
	control := filepath.Join(r.Dir, "run-connector", "control", "s")
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", control)
	}
	r.call = connectorv1connect.NewConnectorServiceClient(&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, "http://connector")
	r.until("the connector answers", func() bool {
		_, err := r.call.Status(r.t.Context(), connect.NewRequest(&connectorv1.StatusRequest{}))
		return err == nil
	})
	if info, err := os.Stat(control); err != nil || info.Mode().Perm() != 0o600 {
		r.t.Errorf("the control socket: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Dir(filepath.Dir(control))); err != nil || info.Mode().Perm() != 0o700 {
		r.t.Errorf("its directory: %v, %v", info, err)
	}
}

func (r *recording) until(what string, holds func() bool) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); !holds(); {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("not so: %s; the connector says %s", what, r.said)
		}
	}
}

// attach attaches a.example, which may reach ok.test.
func (r *recording) attach(generation uint64, slice uint32) (socket string, err error) {
	r.t.Helper()
	bundle := fmt.Sprintf("version: v1\nagent: {id: a.example}\negress:\n  allow:\n    - {name: ok.test, ports: [%s], resolve: [127.0.0.1]}\n", r.port)
	a, err := r.call.Attach(r.t.Context(), connect.NewRequest(&connectorv1.AttachRequest{Bundle: []byte(bundle), Generation: generation, PoolSlice: &slice}))
	if err != nil {
		return "", err
	}
	return a.Msg.GetEgressSocket(), nil
}

// open asks for a name through a socket, and says what the status was.
func (r *recording) open(socket, name string) (net.Conn, int) {
	r.t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(c, "CONNECT %s:%s HTTP/1.1\r\nHost: %[1]s:%[2]s\r\n\r\n", name, r.port)
	in, status := bufio.NewReader(c), 0
	line, err := in.ReadString('\n')
	if _, scanned := fmt.Sscanf(line, "HTTP/1.1 %d", &status); err != nil || scanned != nil {
		r.t.Fatalf("%q, %v", line, err)
	}
	for line != "\r\n" && err == nil {
		line, err = in.ReadString('\n')
	}
	return c, status
}

func lives(c net.Conn) bool {
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

// entry is a line of `skep ledger show --json`.
type entry struct {
	Kind, Agent string
	Body        map[string]any
}

// ledger is what the ledger has of the newest life of a.example; it must be sound.
func (r *recording) ledger() (all []entry) {
	r.t.Helper()
	if v := r.Try("ledger", "verify"); v.Code != 0 && v.Code != 11 { // 11: of a cell that runs a tail is not signed yet
		r.t.Errorf("skep ledger verify: %d\n%s%s", v.Code, v.Out, v.Err)
	}
	for line := range strings.Lines(r.Skep("ledger", "show", "a.example", "--json")) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		if e.Agent != "a.example" && e.Kind != "note" {
			r.t.Errorf("an entry of %q: %v", e.Agent, e)
		}
		all = append(all, e)
	}
	return all
}

func (r *recording) has(all []entry, kind, key, value string) {
	r.t.Helper()
	if !slices.ContainsFunc(all, func(e entry) bool { return e.Kind == kind && fmt.Sprint(e.Body[key]) == value }) {
		r.t.Errorf("the ledger has no %s with %s %s: %v", kind, key, value, all)
	}
}

// TestB210Ledger: what a connector attaches is in skepd's signed ledger as a cell is.
func TestB210Ledger(t *testing.T) {
	r := newRecording(t)
	r.start()
	socket, err := r.attach(3, 2)
	if err != nil {
		t.Fatal(err)
	}
	all := r.ledger() // before anything was asked for (G83)
	r.has(all, "cell.declared", "generation", "3")
	r.has(all, "cell.declared", "pool_slice", "2")
	r.has(all, "cell.declared", "identity", "unverified")
	c, status := r.open(socket, "ok.test")
	if status != 200 || !lives(c) {
		t.Errorf("%d", status)
	}
	if _, status := r.open(socket, "no.test"); status != 403 {
		t.Errorf("%d", status)
	}
	r.has(r.ledger(), "flow.intent", "destination", "ok.test")
	r.until("the refusal is recorded", func() bool {
		return slices.ContainsFunc(r.ledger(), func(e entry) bool { return e.Kind == "flow.denied" && e.Body["reason"] == "not-on-allowlist" })
	})
	if out := r.Skep("ps"); !strings.Contains(out, "a.example") {
		t.Errorf("skep ps:\n%s", out)
	}
	if out := r.Skep("ledger", "show", "a.example"); !strings.Contains(out, "agent a.example (unverified) of another runtime, generation 3") {
		t.Errorf("the story:\n%s", out)
	}
	for _, args := range [][]string{{"diff", "a.example"}, {"merge", "--yes", "a.example"}, {"why", "a.example", "--host", "ok.test"}} {
		if x := r.Try(args...); strings.Contains(x.Out+x.Err, "panic") {
			t.Errorf("%v: %s%s", args, x.Out, x.Err)
		}
	}
	// Another skepd takes the place of this one, and the flow and its records go on.
	if x := r.Try("upgrade"); x.Code != 0 {
		t.Errorf("skep upgrade: %d %s%s", x.Code, x.Out, x.Err)
	}
	if !lives(c) {
		t.Error("the flow did not outlive a replacement of skepd")
	}
	if _, status := r.open(socket, "ok.test"); status != 200 {
		t.Errorf("after a replacement of skepd: %d", status)
	}
	if _, err := r.call.Detach(t.Context(), connect.NewRequest(&connectorv1.DetachRequest{AgentId: "a.example"})); err != nil {
		t.Fatal(err)
	}
	all = r.ledger()
	r.has(all, "cell.stopped", "cause", "revoked")
	if n := slices.IndexFunc(all, func(e entry) bool { return e.Kind == "cell.stopped" }); n < 0 || slices.ContainsFunc(all[n+1:], func(e entry) bool { return e.Kind == "flow.outcome" }) {
		t.Errorf("a flow ended after its cell: %v", all)
	}
	if v := r.Try("ledger", "verify"); v.Code != 0 {
		t.Errorf("all have ended, and skep ledger verify says %d\n%s%s", v.Code, v.Out, v.Err)
	}
	if _, err := r.attach(4, 2); err == nil {
		t.Error("a slice of an earlier life was given out")
	}
}

// TestB210LedgerKilled: whichever program is killed, nothing of the agent is left, and what
// was acknowledged is there. Who stops the cell detaches the agent.
func TestB210LedgerKilled(t *testing.T) {
	r := newRecording(t)
	r.start()
	socket, err := r.attach(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := r.open(socket, "ok.test")
	if !lives(c) {
		t.Fatal("no flow")
	}
	if err := syscall.Kill(journey.Daemon(r.Dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-r.ended; err == nil || !strings.Contains(r.said.String(), "skepd has ended") {
		t.Errorf("%v: %s", err, r.said)
	}
	gone(t, socket, c)
	all := r.ledger() // by another skepd
	r.has(all, "flow.intent", "destination", "ok.test")
	r.has(all, "cell.stopped", "cause", "daemon-died")

	r.start()
	if socket, err = r.attach(2, 2); err != nil {
		t.Fatal(err)
	}
	c, _ = r.open(socket, "ok.test")
	if !lives(c) {
		t.Fatal("no flow")
	}
	_ = r.connector.Process.Kill()
	<-r.ended
	gone(t, "", c)
	r.until("the end is recorded", func() bool {
		return slices.ContainsFunc(r.ledger(), func(e entry) bool { return e.Kind == "cell.stopped" && e.Body["cause"] == "boundary-died" })
	})
	r.has(r.ledger(), "flow.intent", "destination", "ok.test")
	r.until("nobody serves", func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	r.start()
	if _, err := os.Stat(filepath.Dir(socket)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next connector left %s: %v", socket, err)
	}

	if socket, err = r.attach(3, 3); err != nil {
		t.Fatal(err)
	}
	c, _ = r.open(socket, "ok.test")
	r.Skep("stop", "a.example")
	gone(t, socket, c)
	r.has(r.ledger(), "cell.stopped", "cause", "revoked")

	if socket, err = r.attach(4, 4); err != nil {
		t.Fatal(err)
	}
	c, _ = r.open(socket, "ok.test")
	if err := journey.EndDaemon(r.Dir); err != nil {
		t.Fatal(err)
	}
	<-r.ended
	gone(t, socket, c)
	all = r.ledger()
	r.has(all, "flow.outcome", "destination", "ok.test")
	r.has(all, "cell.stopped", "cause", "revoked")
	if v := r.Try("ledger", "verify"); v.Code != 0 {
		t.Errorf("skep ledger verify: %d\n%s%s", v.Code, v.Out, v.Err)
	}
}

// gone sees that a flow is over and a socket is not there.
func gone(t *testing.T, socket string, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(15 * time.Second))
	if rest, err := io.ReadAll(c); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the flow goes on: %q, %v", rest, err)
	}
	if socket == "" {
		return
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is there: %v", err)
	}
}
