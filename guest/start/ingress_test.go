package start

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skep.dev/skep/internal/tunnel"
)

// TestBI1BI2BI3BI4BothRoutes: the pinned port is reached in both forms, with what came in
// the same packet; no other port is, and nothing that is no handshake of the form.
func TestBI1BI2BI3BI4BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		for form, want := range map[string]string{"http": "HTTP/1.1 200 OK", "text": "OK"} {
			b := serveBoundary(t, nil)
			socket := filepath.Join(t.TempDir(), "in")
			ours, err := tunnel.ParseForm(form)
			if err != nil {
				t.Fatal(err)
			}
			other := map[tunnel.Form]tunnel.Form{tunnel.OnlyHTTP: tunnel.OnlyText, tunnel.OnlyText: tunnel.OnlyHTTP}[ours]
			_, lines, _ := running(t, b, append(slices.Clone(flags), "--ingress-socket", socket, "--ingress-port", "8080", "--ingress-form", form), prober(t), "serve=127.0.0.1:8080")
			if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the ingress socket: %v, %v", info, err)
			}
			if answer, _ := ask(t, socket, 8081, ours, ""); !strings.Contains(answer, "403") && !strings.HasPrefix(answer, "ERR ") {
				t.Errorf("another port: %q", answer)
			}
			if answer, echoed := ask(t, socket, 8080, other, "payload"); !strings.Contains(answer, "400") && !strings.HasPrefix(answer, "ERR ") || echoed == "payload" {
				t.Errorf("the other form: %q, %q", answer, echoed)
			}
			for _, line := range []string{"GET / HTTP/1.1\r\n\r\n", "CONNECT 8.8.8.8:8080 HTTP/1.1\r\nHost: 8.8.8.8:8080\r\n\r\n", "hello\n"} {
				if answer := deliver(t, socket, line); strings.Contains(answer, "200") || strings.HasPrefix(answer, "OK") {
					t.Errorf("%q: %q", line, answer)
				}
			}
			answer, echoed := ask(t, socket, 8080, ours, "payload right behind")
			if answer != want || echoed != "payload right behind" {
				t.Errorf("%q, then %q", answer, echoed)
			}
			if got := rest(lines)["serve=127.0.0.1:8080"]; got != "20" { // the first connection that the agent got
				t.Errorf("the agent got %q bytes", got)
			}
		}
	})
}

// deliver sends some bytes and reads what comes.
func deliver(t *testing.T, socket, text string) string {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.UnixConn).CloseWrite()
	all, _ := io.ReadAll(c)
	return string(all)
}

// ask delivers one request, its payload in the same packet, and returns the first line
// of the answer and what comes after its head.
func ask(t *testing.T, socket string, port uint16, form tunnel.Form, payload string) (string, string) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var head strings.Builder
	if err := tunnel.AskIngress(&head, port, form); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, head.String()+payload); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.UnixConn).CloseWrite()
	all, _ := io.ReadAll(c)
	first, rest, _ := strings.Cut(string(all), "\n")
	if form == tunnel.OnlyHTTP {
		_, rest, _ = strings.Cut(rest, "\r\n")
	}
	return strings.TrimSpace(first), rest
}

// TestBG27Explicit: the explicit route relays what is asked and what is answered.
func TestBG27Explicit(t *testing.T) {
	at := echo(t)
	b := serveBoundary(t, map[string]string{"ok.test:7080": at})
	got := probe(t, b, []string{"--route", "explicit"}, "proxied=ok.test:7080", "proxied=denied.test:7080", "tcp=93.184.216.34:7080", "socks=ok.test:7080")
	expect(t, got, map[string]string{"proxied=ok.test:7080": "HTTP/1.1 200 OK", "proxied=denied.test:7080": "HTTP/1.1 403 not on allowlist", "tcp=93.184.216.34:7080": "network is unreachable", "socks=ok.test:7080": "EOF"})
}

// TestCABundleGuest: B125 inside a guest.
func TestCABundleGuest(t *testing.T) {
	b := serveBoundary(t, nil)
	bundle := filepath.Join(t.TempDir(), "bundle.pem")
	if err := os.WriteFile(bundle, []byte("the bundle\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CURL_CA_BUNDLE", "/mine")
	t.Setenv("SSL_CERT_FILE", "") // so that it comes back as it was
	if err := os.Unsetenv("SSL_CERT_FILE"); err != nil {
		t.Fatal(err)
	}
	got := probe(t, b, []string{"--ca-bundle", bundle}, "env=SSL_CERT_FILE", "env=CURL_CA_BUNDLE", "env=SKEP_INIT_INSIDE", "read=/etc/ssl/certs/ca-certificates.crt", "read=/etc/resolv.conf")
	expect(t, got, map[string]string{"env=SSL_CERT_FILE": bundle, "env=CURL_CA_BUNDLE": "/mine", "env=SKEP_INIT_INSIDE": "", "read=/etc/resolv.conf": "nameserver 100.127.255.253"})
	if _, err := os.Stat("/etc/ssl/certs/ca-certificates.crt"); err == nil && got["read=/etc/ssl/certs/ca-certificates.crt"] != "the bundle" {
		t.Errorf("the trusted certificates are %.40q", got["read=/etc/ssl/certs/ca-certificates.crt"])
	}
}
