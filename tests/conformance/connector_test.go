package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	connectorv1 "skep.dev/skep/api/connector/v1"
	"skep.dev/skep/api/connector/v1/connectorv1connect"
	"skep.dev/skep/internal/credential/issuertest"
	"skep.dev/skep/internal/testlab"
)

// platform is a scheduler, with the built programs at the other end of the control socket.
type platform struct {
	t      *testing.T
	dir    string
	issuer *issuertest.Issuer
	call   connectorv1connect.ConnectorServiceClient
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	lab := testlab.New(t)
	testlab.Built(t, "skep-connector")
	p := &platform{t: t, dir: lab.Dir(), issuer: issuertest.New(t)}
	ca := p.write("ca.pem", string(p.issuer.CA))
	control := filepath.Join(p.dir, "control", "s")
	c := exec.Command(testlab.Built(t, "skep-box"), "serve", "--control", control, "--dir", filepath.Join(p.dir, "agents"), "--records", filepath.Join(p.dir, "records"),
		"--credential-issuer", p.issuer.URL, "--credential-audience", "skep", "--credential-ca", ca)
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("the connector ended with %v: %s", err, &said)
		}
		if left, err := os.ReadDir(filepath.Join(p.dir, "agents")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", control)
	}
	p.call = connectorv1connect.NewConnectorServiceClient(&http.Client{Transport: &http.Transport{DialContext: dial}}, "http://connector")
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		if _, err := p.call.Status(t.Context(), connect.NewRequest(&connectorv1.StatusRequest{})); err == nil {
			return p
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%v: %s", err, &said)
		default:
		}
	}
}

func (p *platform) write(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// bundle names an agent that a token vouches for.
func (p *platform) bundle(agent, external, token string) *connectorv1.AttachRequest {
	path := p.write(agent+".jwt", token)
	return &connectorv1.AttachRequest{Bundle: []byte(fmt.Sprintf("version: v1\nagent: {id: %s.example, external_id: %q, credential: %s}\n", agent, external, path))}
}

// TestBC50: who is attached, and who is not, with the built programs and an issuer of our own.
func TestBC50(t *testing.T) {
	p := newPlatform(t)
	ctx, other := t.Context(), issuertest.New(t)
	good := p.issuer.Token("sa:a", "skep", time.Hour, nil)
	for what, bad := range map[string]*connectorv1.AttachRequest{
		"sub":            p.bundle("a", "sa:a", p.issuer.Token("sa:b", "skep", time.Hour, nil)),
		"issuer":         p.bundle("b", "sa:a", other.Token("sa:a", "skep", time.Hour, nil)),
		"audience":       p.bundle("c", "sa:a", p.issuer.Token("sa:a", "other", time.Hour, nil)),
		"expired":        p.bundle("d", "sa:a", p.issuer.Token("sa:a", "skep", -time.Hour, nil)),
		"no external_id": {Bundle: []byte("version: v1\nagent: {id: e.example, credential: " + p.write("e.jwt", good) + "}\n")},
	} {
		if _, err := p.call.Attach(ctx, connect.NewRequest(bad)); err == nil || strings.Contains(err.Error(), good[:20]) {
			t.Errorf("%s: %v", what, err)
		}
	}
	batch, err := p.call.AttachBatch(ctx, connect.NewRequest(&connectorv1.AttachBatchRequest{Bundles: []*connectorv1.AttachRequest{
		p.bundle("x", "sa:a", good), {Bundle: []byte("version: v9\n")}, p.bundle("y", "sa:a", good),
	}}))
	if err != nil {
		t.Fatal(err)
	}
	r := batch.Msg.GetResults()
	if r[0].GetError() != "" || r[1].GetError() == "" || r[2].GetError() != "" || r[0].GetCredentialExpiryUnix() < time.Now().Unix() {
		t.Fatalf("%v", r)
	}
	again, err := p.call.Attach(ctx, connect.NewRequest(p.bundle("x", "sa:a", p.issuer.Token("sa:a", "skep", 2*time.Hour, nil))))
	if err != nil || again.Msg.GetEgressSocket() != r[0].GetEgressSocket() || again.Msg.GetCredentialExpiryUnix() <= r[0].GetCredentialExpiryUnix() {
		t.Errorf("%v, %v", again, err)
	}
	if s, err := os.Stat(r[0].GetEgressSocket()); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := p.call.Detach(ctx, connect.NewRequest(&connectorv1.DetachRequest{AgentId: "x.example"})); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(r[0].GetEgressSocket())); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	all, err := p.call.Status(ctx, connect.NewRequest(&connectorv1.StatusRequest{}))
	if err != nil || len(all.Msg.GetAgents()) != 1 || !all.Msg.GetAgents()[0].GetVerified() {
		t.Errorf("%v, %v", all, err)
	}
}

// TestNoStart: without an issuer that answers, or with flags that contradict each other,
// nothing is made (B212, B213).
func TestNoStart(t *testing.T) {
	lab := testlab.New(t)
	testlab.Built(t, "skep-connector")
	dir := lab.Dir()
	bundle := filepath.Join(dir, "b.yaml")
	if err := os.WriteFile(bundle, []byte("version: v1\nagent: {id: a.example}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s", "s")
	for _, flags := range [][]string{
		{"--credential-issuer", "https://127.0.0.1:9", "--credential-audience", "skep"},
		{"--credential-issuer", "https://127.0.0.1:9", "--insecure-unverified-bundle"},
		{"--credential-issuer", "https://127.0.0.1:9"},
		{},
	} {
		out, err := lab.Program("skep-box", append([]string{"run", "--socket", socket, "--bundle", bundle}, flags...)...).CombinedOutput()
		if err == nil {
			t.Errorf("%q: %s", flags, out)
		}
		if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
			t.Errorf("%q: something was made: %v", flags, err)
		}
	}
}
