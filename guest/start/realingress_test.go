package start

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBI1BI4BI9RealBoundaryGuest: a caller of Skep's own boundary reaches the agent of a guest
// through skep-init, in both forms, and his credentials do not.
func TestBI1BI4BI9RealBoundaryGuest(t *testing.T) {
	programs, err := built()
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"http", "text"} {
		dir, err := os.MkdirTemp("", "g")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		guest, callers := filepath.Join(dir, "guest"), filepath.Join(dir, "in", "s")
		b, _ := serveReal(t, "    - {name: ok.test, ports: [443]}\nserves: {name: guest.example, port: 8080}\n",
			"--agent-ingress-socket", guest, "--ingress-socket", callers, "--ingress-form", form)
		if _, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
			t.Skipf("no tun device can be opened here: %v", err)
		}
		c := exec.Command(filepath.Join(programs, "skep-init"), "run", "--create-namespaces", "--ingress-socket", guest, "--ingress-port", "8080", "--ingress-form", form,
			b.path, filepath.Join(programs, "probe"), "serve=127.0.0.1:8080")
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "ready" {
			t.Fatalf("the agent says %q", lines.Text())
		}
		caller, err := net.Dial("unix", callers)
		if err != nil {
			t.Fatal(err)
		}
		_ = caller.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(caller, "POST / HTTP/1.1\r\nHost: guest.example\r\nCookie: secret\r\nContent-Length: 4\r\n\r\nbody")
		_ = caller.(*net.UnixConn).CloseWrite()
		echoed, err := io.ReadAll(caller)
		_ = caller.Close()
		if want := "POST / HTTP/1.1\r\nHost: guest.example\r\nContent-Length: 4\r\n\r\nbody"; string(echoed) != want || err != nil {
			t.Errorf("%s: the agent saw %q, %v", form, strings.TrimSpace(string(echoed)), err)
		}
		for lines.Scan() {
		}
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
}
