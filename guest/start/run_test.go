package start

import (
	"bytes"
	"errors"
	"net/netip"
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

// guest runs a command behind skep-init, in namespaces of its own.
func guest(t *testing.T, b *testBoundary, flags []string, args ...string) (string, int) {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		t.Skipf("no tun device can be opened here: %v", err)
	}
	all := append([]string{"run", "--create-namespaces"}, flags...)
	all = append(append(all, b.path), args...)
	c := exec.Command(filepath.Join(dir, "skep-init"), all...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err = c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), c.ProcessState.ExitCode()
}

// probe runs attempts and returns how each ended.
func probe(t *testing.T, b *testBoundary, flags []string, attempts ...string) map[string]string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	out, code := guest(t, b, flags, append([]string{filepath.Join(dir, "probe")}, attempts...)...)
	if code != 0 {
		t.Fatalf("the guest ended with %d:\n%s", code, out)
	}
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

// TestBG19GI2Guest: the agent's power over its network is gone.
func TestBG19GI2Guest(t *testing.T) {
	b := serveBoundary(t, nil)
	got := probe(t, b, nil, "caps=", "down=tun0")
	if got["down=tun0"] != "operation not permitted" {
		t.Errorf("tun0 can be set down: %q", got["down=tun0"])
	}
	for _, field := range strings.Fields(got["caps="]) {
		key, value, _ := strings.Cut(field, ":")
		bits, err := strconv.ParseUint(value, 16, 64)
		if key == "NoNewPrivs" {
			if value != "1" {
				t.Error("no_new_privs is not set")
			}
			continue
		}
		if err != nil || bits&(1<<12|1<<13|1<<21) != 0 {
			t.Errorf("%s is %s", key, value)
		}
	}
}

// TestGI6Guest: the agent's status comes back; setup's are ours.
func TestGI6Guest(t *testing.T) {
	b := serveBoundary(t, nil)
	for command, want := range map[string]int{"exit 3": 3, "kill -SEGV $$": 139} {
		if out, code := guest(t, b, nil, "/bin/sh", "-c", command); code != want {
			t.Errorf("%s: %d, want %d\n%s", command, code, want, out)
		}
	}
	if _, code := guest(t, b, nil, "/no/such/program"); code != 127 {
		t.Errorf("a missing program: %d", code)
	}
	if _, code := guest(t, b, nil, "/etc/passwd"); code != 126 {
		t.Errorf("no program: %d", code)
	}
	b.path += "-absent"
	if out, code := guest(t, b, []string{"--ready", "100ms"}, "/bin/true"); code != 125 || !strings.Contains(out, "the boundary does not answer at") {
		t.Errorf("without a boundary: %d %s", code, out)
	}
}

// TestGI10Guest: a cold start with the next slice hands out nothing of the last one.
func TestGI10Guest(t *testing.T) {
	b := serveBoundary(t, nil)
	for slice, want := range map[string]string{"1": "100.65.0.1 100:0:0:0:1::1", "64": "100:0:0:0:40::1"} {
		got := strings.Fields(probe(t, b, []string{"--pool-slice", slice, "--generation", "2"}, "lookup=a.test")["lookup=a.test"])
		slices.Sort(got)
		for i, w := range strings.Fields(want) {
			if addr := netip.MustParseAddr(w).String(); i >= len(got) || !slices.Contains(got, addr) {
				t.Errorf("slice %s gives %q, want %s", slice, got, addr)
			}
		}
		if len(got) != len(strings.Fields(want)) {
			t.Errorf("slice %s gives %q, want %q", slice, got, want)
		}
	}
	if out, code := guest(t, b, []string{"--pool-slice", "65536"}, "/bin/true"); code != 125 {
		t.Errorf("a slice that does not exist: %d %s", code, out)
	}
}
