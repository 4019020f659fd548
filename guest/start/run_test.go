package start

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// built are the programs of these tests, made once.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "skep-guest-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir+"/", "skep.dev/skep/guest/cmd/skep-init", "skep.dev/skep/guest/start/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := built(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// needTun skips a test of the tun route where no device can be made.
func needTun(t *testing.T, flags []string) {
	t.Helper()
	if slices.Contains(flags, "explicit") {
		return
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no tun device can be opened here: %v", err)
	}
	_ = f.Close()
}

// bothRoutes runs a test by the device and by the endpoint.
func bothRoutes(t *testing.T, test func(t *testing.T, flags []string)) {
	for _, by := range []string{"tun", "explicit"} {
		t.Run(by, func(t *testing.T) {
			flags := []string{"--route", by}
			needTun(t, flags)
			test(t, flags)
		})
	}
}

// command is skep-init with a command behind it, in namespaces of its own.
func command(t *testing.T, b *testBoundary, flags []string, args ...string) *exec.Cmd {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	needTun(t, flags)
	all := append(append([]string{"run", "--create-namespaces"}, flags...), b.path)
	return exec.Command(filepath.Join(dir, "skep-init"), append(all, args...)...)
}

// guest runs a command behind skep-init.
func guest(t *testing.T, b *testBoundary, flags []string, args ...string) (string, int) {
	t.Helper()
	c := command(t, b, flags, args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), c.ProcessState.ExitCode()
}

// prober is the agent of these tests.
func prober(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "probe")
}

// probe runs attempts and returns how each ended.
func probe(t *testing.T, b *testBoundary, flags []string, attempts ...string) map[string]string {
	t.Helper()
	out, code := guest(t, b, flags, append([]string{prober(t)}, attempts...)...)
	if code != 0 {
		t.Fatalf("the guest ended with %d:\n%s", code, out)
	}
	return read(out)
}

// read takes the lines of a prober apart.
func read(out string) map[string]string {
	got := map[string]string{}
	for line := range strings.Lines(out) {
		attempt, how, _ := strings.Cut(strings.TrimSpace(line), ": ")
		got[attempt] = how
	}
	return got
}

func expect(t *testing.T, got, want map[string]string) {
	t.Helper()
	for attempt, how := range want {
		if got[attempt] != how {
			t.Errorf("%s: %q, want %q", attempt, got[attempt], how)
		}
	}
}

// TestBG1BG2BG3BG4Guest: names arrive as names, literals as literals; what is denied is
// ECONNREFUSED.
func TestBG1BG2BG3BG4Guest(t *testing.T) {
	at := echo(t)
	b := serveBoundary(t, map[string]string{"ok.test:7080": at, "93.184.216.34:7080": at, "[2001:db8::1]:7080": at})
	expect(t, probe(t, b, nil, "tcp=ok.test:7080", "tcp=93.184.216.34:7080", "tcp=[2001:db8::1]:7080", "bulk=ok.test:7080",
		"tcp=denied.test:7080", "tcp=8.8.8.8:7080", "tcp=[2001:db8::2]:7080"), map[string]string{
		"tcp=ok.test:7080": "hello", "tcp=93.184.216.34:7080": "hello", "tcp=[2001:db8::1]:7080": "hello", "bulk=ok.test:7080": strconv.Itoa(64 << 20),
		"tcp=denied.test:7080": "connection refused", "tcp=8.8.8.8:7080": "connection refused", "tcp=[2001:db8::2]:7080": "connection refused",
	})
	for _, want := range []string{"tcp ok.test:7080", "tcp 93.184.216.34:7080", "tcp denied.test:7080", "tcp 8.8.8.8:7080"} {
		if !slices.Contains(b.requests(), want) {
			t.Errorf("the boundary was not asked for %s: %q", want, b.requests())
		}
	}
}

// TestBG6BG7BG10BG11Guest: DNS is answered inside; UDP that is off leaves nothing.
func TestBG6BG7BG10BG11Guest(t *testing.T) {
	b := serveBoundary(t, nil)
	got := probe(t, b, nil, "lookup=a.test", "mx=a.test", "udp=8.8.8.8:4433", "tcp=8.8.8.8:53", "tcp=100.64.77.77:80")
	if found := strings.Fields(got["lookup=a.test"]); !slices.Contains(found, "100.64.0.1") || !slices.Contains(found, "100::1") {
		t.Errorf("a.test is %q", got["lookup=a.test"])
	}
	expect(t, got, map[string]string{"udp=8.8.8.8:4433": "connection refused", "tcp=8.8.8.8:53": "connection refused", "tcp=100.64.77.77:80": "connection refused"})
	for _, asked := range b.requests() {
		if strings.HasPrefix(asked, "udp") || strings.Contains(asked, "a.test") {
			t.Errorf("the boundary saw %q", asked)
		}
	}
}

// TestBG8Guest: UDP by connect-udp.
func TestBG8Guest(t *testing.T) {
	b := serveBoundary(t, map[string]string{"ok.test:7080": echoUDP(t), "1.1.1.1:7080": echoUDP(t)})
	expect(t, probe(t, b, []string{"--udp"}, "udp=ok.test:7080", "udp=1.1.1.1:7080"), map[string]string{"udp=ok.test:7080": "hello", "udp=1.1.1.1:7080": "hello"})
	if t.Failed() {
		t.Logf("the boundary was asked for %q", b.requests())
	}
}

// TestBG9Guest: any 2xx is a success, interim answers are skipped, a refusal is asked
// for once each.
func TestBG9Guest(t *testing.T) {
	at := echo(t)
	b := serveAnswers(t, map[string]string{"a.test:80": at, "b.test:80": at}, map[string]string{"a.test:80": "HTTP/1.1 202 Accepted\r\n\r\n", "b.test:80": "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "c.test:80": "HTTP/1.1 403 Forbidden\r\n\r\n"})
	expect(t, probe(t, b, nil, "tcp=a.test:80", "tcp=b.test:80", "tcp=c.test:80"), map[string]string{
		"tcp=a.test:80": "hello", "tcp=b.test:80": "hello", "tcp=c.test:80": "connection refused"})
}

// TestGI6BothRoutes: the agent's status comes back; setup's are ours.
func TestGI6BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		b := serveBoundary(t, nil)
		for command, want := range map[string]int{"exit 3": 3, "kill -SEGV $$": 139} {
			if out, code := guest(t, b, flags, "/bin/sh", "-c", command); code != want {
				t.Errorf("%s: %d, want %d\n%s", command, code, want, out)
			}
		}
		if _, code := guest(t, b, flags, "/no/such/program"); code != 127 {
			t.Errorf("a missing program: %d", code)
		}
		if _, code := guest(t, b, flags, "/etc/passwd"); code != 126 {
			t.Errorf("no program: %d", code)
		}
		b.path += "-absent"
		if out, code := guest(t, b, append(flags, "--ready", "100ms"), "/bin/true"); code != 125 || !strings.Contains(out, "the boundary does not answer at") {
			t.Errorf("without a boundary: %d %s", code, out)
		}
	})
}
