package daemon

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/client"
)

func TestDaemonGreets(t *testing.T) {
	l := newLab(t).start()
	if v, err := client.Negotiate(context.Background(), l.client()); err != nil || v.Api != client.APIMax || v.State != l.config.State {
		t.Errorf("got %v, %v", v, err)
	}
}

// The client's own call of Run says what the generated one does.
func TestRunCallsAreAlike(t *testing.T) {
	l := newLab(t).start()
	socket := filepath.Join(l.config.Run, "api.sock")
	follow := func(state string, q *skepv1.RunRequest) (*skepv1.Cell, error) {
		e, err := client.Run(t.Context(), socket, state, q)
		if err != nil {
			return nil, err
		}
		defer e.Close()
		var last *skepv1.Cell
		for e.Receive() {
			last = e.Msg().Cell
		}
		if e.Receive() {
			t.Error("an event after the last")
		}
		return last, e.Err()
	}
	c, err := follow(l.config.State, l.request("", "/bin/sh", "-c", "exit 7"))
	if err != nil || c.GetState() != skepv1.CellState_CELL_STATE_STOPPED || c.ExitCode != 7 {
		t.Errorf("got %v, %v", c, err)
	}
	if _, err := follow(t.TempDir(), l.request("", "/bin/true")); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("with another state: %v", err)
	}
	bad := &skepv1.RunRequest{Name: "no name", Argv: []string{"/bin/true"}}
	_, own := follow(l.config.State, bad)
	_, generated := l.run(bad)
	if own == nil || generated == nil || own.Error() != generated.Error() || connect.CodeOf(own) != connect.CodeOf(generated) {
		t.Errorf("a fault is told as %v, and by the generated client as %v", own, generated)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Run(ended, socket, "", bad); err == nil {
		t.Error("called after its time")
	}
}

// A check says what this host refuses or does not hold, though the profile is in order.
func TestCheckKnowsTheHost(t *testing.T) {
	l := newLab(t).start()
	r, err := l.client().Check(t.Context(), connect.NewRequest(&skepv1.CheckRequest{ProfileName: "p.yaml", ProfileDir: "/", Profile: []byte(
		"version: v1\nbudget: {cpu_time: 1m}\nnet:\n  - {name: a.example, ports: [8099], resolve: [127.0.0.1]}\n  - {ip: 127.0.0.1}\n  - {ip: 192.0.2.1}\n  - {name: b.example}\n")}))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Msg.Faults) != 1 || !strings.Contains(r.Msg.Faults[0].Message, "cannot be enforced here") {
		t.Errorf("faults %v", r.Msg.Faults)
	}
	if n := r.Msg.Notes; len(n) != 2 || !strings.Contains(n[0], "a.example:8099 is refused all the same, resolved-address-denied") ||
		!strings.Contains(n[1], `127.0.0.1:443 is refused all the same, ip-not-on-allowlist`) || !strings.Contains(n[1], "open: [{cidr:") {
		t.Errorf("notes %q", n)
	}
}

// A check takes ~ as a run does.
func TestCheckKnowsTheHome(t *testing.T) {
	l := newLab(t).start()
	q := &skepv1.CheckRequest{ProfileName: "p.yaml", ProfileDir: "/", Profile: []byte("version: v1\npaths: [{path: ~/src, rights: ro}]\n")}
	r, err := l.client().Check(t.Context(), connect.NewRequest(q))
	if err != nil || len(r.Msg.Faults) == 0 {
		t.Errorf("without a home: %v, %v", r, err)
	}
	q.Home = "/home/somebody"
	if r, err = l.client().Check(t.Context(), connect.NewRequest(q)); err != nil || len(r.Msg.Faults) != 0 || r.Msg.Digest == "" {
		t.Errorf("with a home: %v, %v", r, err)
	}
}
