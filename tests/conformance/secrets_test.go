package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
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
	"skep.dev/skep/internal/testlab"
)

// TestBS1InATunnel: an agent of another runtime that is attached with a secret gets a
// placeholder and an authority to trust; over its tunnel the destination gets the value, in
// its place and nowhere else; the records have the name; a new value is used from the next
// request on, and after the end nothing is left (BS-1, BS-3, BS-9, BS-11, BS-14).
func TestBS1InATunnel(t *testing.T) {
	lab := testlab.New(t)
	lab.Host("api.test", "93.184.216.34")
	lab.Host("bad.test", "93.184.216.35")
	lab.HTTPS("93.184.216.35:443", nil, "wrong.test")
	lab.HTTPS("93.184.216.34:443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
			return
		}
		_, _ = io.WriteString(w, "served")
	}))
	dir := lab.Dir()
	value := "v4l-tunnel-0123456789"
	source := replace(t, dir, "gh", value+"\n")
	records := filepath.Join(dir, "records")
	call, said := connectorOf(t, lab, records)
	bundle := func(hosts string) []byte {
		return fmt.Appendf(nil, "version: v1\nagent: {id: a.example}\negress:\n  allow: [\"api.test:443\", \"bad.test:443\"]\n  secrets: [{name: gh, source: \"file:%s\", hosts: [%s], as: [bearer]}]\n", source, hosts)
	}
	attached, err := call.Attach(t.Context(), connect.NewRequest(&connectorv1.AttachRequest{Bundle: bundle("api.test, bad.test")}))
	if err != nil {
		t.Fatal(err, said())
	}
	a := attached.Msg
	mark := a.GetPlaceholders()["gh"]
	pool := x509.NewCertPool()
	if !strings.HasPrefix(mark, "skep-secret-gh-") || !pool.AppendCertsFromPEM(a.GetAuthority()) {
		t.Fatalf("%v", a)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true, DialContext: func(ctx context.Context, _, at string) (net.Conn, error) {
		return tunnelTo(ctx, a.GetEgressSocket(), at)
	}}}
	get := func(url, header, text string) (int, string, error) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set(header, text)
		r, err := client.Do(q)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = r.Body.Close() }()
		body, err := io.ReadAll(r.Body)
		return r.StatusCode, r.Header.Get("Boundary-Reason") + string(body), err
	}
	last := func() string {
		all := lab.Requests()
		return all[len(all)-1].Header.Get("Authorization")
	}
	if status, body, err := get("https://api.test/", "Authorization", "Bearer "+mark); err != nil || status != 200 || body != "served" || last() != "Bearer "+value {
		t.Fatalf("%d %q %v: %q", status, body, err, last())
	}
	if status, body, err := get("https://api.test/", "Cookie", mark); status != 403 || !strings.Contains(body, "in a place that its rule does not name") {
		t.Errorf("%d %q %v", status, body, err)
	}
	if status, _, err := get("https://bad.test/", "Authorization", "Bearer "+mark); status != 502 {
		t.Errorf("an unverified destination: %d %v", status, err)
	}
	if _, body, err := get("https://api.test/echo", "Authorization", "Bearer "+mark); err == nil || strings.Contains(body, value) {
		t.Errorf("a reflected value: %q %v", body, err)
	}
	if _, err := call.Attach(t.Context(), connect.NewRequest(&connectorv1.AttachRequest{Bundle: bundle("api.test")})); err == nil || !strings.Contains(err.Error(), "detach it first") {
		t.Errorf("other secrets: %v", err)
	}
	next := "v4l-tunnel-9876543210"
	replace(t, dir, "gh", next)
	for begun := time.Now(); last() != "Bearer "+next; {
		if _, _, err := get("https://api.test/", "Authorization", "Bearer "+mark); err != nil || time.Since(begun) > 20*time.Second {
			t.Fatalf("%v: still %q", err, last())
		}
	}
	if _, err := call.Detach(t.Context(), connect.NewRequest(&connectorv1.DetachRequest{AgentId: "a.example"})); err != nil {
		t.Error(err)
	}
	raw, err := os.ReadFile(records)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind":"secret"`, `"secret":"gh"`, `"place":"bearer"`, `"reason":"secret-misplaced"`, `"reason":"secret-reflected"`, `"reason":"upstream-tls-failed"`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("the records have no %s", want)
		}
	}
	for _, never := range []string{value, next, mark} {
		if strings.Contains(string(raw), never) || strings.Contains(said(), never) {
			t.Errorf("%s is in the records or the log", never)
		}
	}
}

// replace puts a file in the place of the one that is there, if any.
func replace(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// connectorOf serves agents in a lab, whose authority vouches for destinations of secrets.
func connectorOf(t *testing.T, lab *testlab.Lab, records string) (call connectorv1connect.ConnectorServiceClient, said func() string) {
	t.Helper()
	dir := lab.Dir()
	control := filepath.Join(dir, "control", "s")
	c := exec.Command(testlab.Built(t, "skep-box"), "serve", "--control", control, "--dir", filepath.Join(dir, "agents"), "--records", records,
		"--insecure-unverified-bundle", "--ceiling", replace(t, dir, "ceiling.yaml", "roots: file:"+lab.CAFile()+"\n"))
	log, err := os.Create(filepath.Join(dir, "connector.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c.Stderr = log
	said = func() string { raw, _ := os.ReadFile(log.Name()); return string(raw) }
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %s", err, said())
		}
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", control)
	}
	call = connectorv1connect.NewConnectorServiceClient(&http.Client{Transport: &http.Transport{DialContext: dial}}, "http://connector")
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		if _, err := call.Status(t.Context(), connect.NewRequest(&connectorv1.StatusRequest{})); err == nil {
			return call, said
		} else if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// tunnelTo is a connection by CONNECT.
func tunnelTo(ctx context.Context, socket, at string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", at, at)
	r, err := http.ReadResponse(bufio.NewReaderSize(c, 16), &http.Request{Method: http.MethodConnect})
	if err != nil || r.StatusCode != 200 {
		_ = c.Close()
		return nil, fmt.Errorf("CONNECT: %v %w", r, err)
	}
	return c, nil
}
