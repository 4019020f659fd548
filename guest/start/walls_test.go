package start

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// container runs skep-init as a runtime would, as root in a network and a mount namespace
// of its own, after some lines of shell: no user namespace is made.
func container(t *testing.T, before string, args ...string) (string, int) {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return contained(t, before, append([]string{filepath.Join(dir, "skep-init")}, args...)...)
}

// contained is container for any command.
func contained(t *testing.T, before string, args ...string) (string, int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a container is made by root")
	}
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 100.127.255.253\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := "set -e\nmount --bind " + resolv + " /etc/resolv.conf\n" + before + "\n" + `exec "$@"`
	c := exec.Command("unshare", append([]string{"--net", "--mount", "sh", "-c", script, "sh"}, args...)...)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// TestBG5Guest: what an agent does without the variables, or with others, is governed the same.
func TestBG5Guest(t *testing.T) {
	b := serveBoundary(t, map[string]string{"ok.test:7080": echo(t)})
	for _, proxy := range []string{"", "http://8.8.8.8:7080"} {
		t.Setenv("HTTP_PROXY", proxy)
		t.Setenv("ALL_PROXY", proxy)
		expect(t, probe(t, b, nil, "tcp=ok.test:7080", "tcp=denied.test:7080", "raw=", "raw6=", "packet="), map[string]string{
			"tcp=ok.test:7080": "hello", "tcp=denied.test:7080": "connection refused",
			"raw=": "operation not permitted", "raw6=": "operation not permitted", "packet=": "operation not permitted",
		})
	}
}

// TestBG14GI2BothRoutes: the agent changes no route, device or rule, takes nothing of
// skep-init's, and is governed the same after it tried. A namespace that it makes has lo only.
func TestBG14GI2BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		b := serveBoundary(t, map[string]string{"ok.test:7080": echo(t)})
		const denied = "operation not permitted"
		got := probe(t, b, flags, "down=lo", "down=tun0", "route=", "noroutes=", "device=", "raw=", "packet=", "ptrace=", "descriptor=", "tun=tun0", "tun=tun1",
			"unshare=ifaces= tcp=8.8.8.8:7080", "reach=ok.test:7080", "tcp=8.8.8.8:7080")
		expect(t, got, map[string]string{"down=lo": denied, "device=": denied, "raw=": denied, "packet=": denied, "ptrace=": denied, "descriptor=": denied,
			"route=": denied, "reach=ok.test:7080": "hello", "unshare=ifaces= tcp=8.8.8.8:7080": "ifaces=: lo; tcp=8.8.8.8:7080: network is unreachable"})
		if slices.Contains(flags, "tun") {
			expect(t, got, map[string]string{"down=tun0": denied, "noroutes=": denied, "tcp=8.8.8.8:7080": "connection refused"})
		} else {
			expect(t, got, map[string]string{"tcp=8.8.8.8:7080": "network is unreachable"})
		}
		for _, name := range []string{"tun=tun0", "tun=tun1"} {
			if got[name] == "made" || got[name] == "" {
				t.Errorf("%s: %q", name, got[name])
			}
		}
		for _, asked := range b.requests() {
			if !strings.Contains(asked, "ok.test") && !strings.Contains(asked, "8.8.8.8") {
				t.Errorf("the boundary was asked for %q", asked)
			}
		}
	})
}

// TestBG16BothRoutes: loopback is the guest's own.
func TestBG16BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		at := echo(t)
		expect(t, probe(t, serveBoundary(t, nil), flags, "loopback=", "tcp="+at), map[string]string{"loopback=": "ok", "tcp=" + at: "connection refused"})
	})
}

// TestBG18BothRoutes: with a second interface nothing starts, and it is named.
func TestBG18BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		b := serveBoundary(t, nil)
		for name, want := range map[string]string{"eth7": "this network namespace has interface eth7", "sit0": "the kernel put sit0 into every new network namespace"} {
			out, code := container(t, "ip tuntap add dev "+name+" mode tun", append(append([]string{"run"}, flags...), b.path, "/bin/echo", "started")...)
			if code != 125 || !strings.Contains(out, want) || strings.Contains(out, "started") {
				t.Errorf("%s: %d %s", name, code, out)
			}
		}
	})
}

// TestBG19BothRoutes: no thread of skep-init, and no set of the agent, has the power over
// the network (G24).
func TestBG19BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		got := probe(t, serveBoundary(t, nil), flags, "caps=", "threads=")
		for _, of := range []string{"caps=", "threads="} {
			if !strings.Contains(got[of], "CapBnd:") || !strings.Contains(got[of], "NoNewPrivs:1") || strings.Contains(got[of], "NoNewPrivs:0") {
				t.Errorf("%s %q", of, got[of])
			}
			for _, field := range strings.Fields(got[of]) {
				key, value, _ := strings.Cut(field, ":")
				bits, err := strconv.ParseUint(value, 16, 64)
				if key != "NoNewPrivs" && (err != nil || bits&(1<<12|1<<13|1<<16|1<<17|1<<19|1<<21|1<<27|1<<38|1<<39) != 0) {
					t.Errorf("%s%s is %s", of, key, value)
				}
			}
		}
	})
}

// TestBG21BothRoutes: the socket of another cell is not there, and what is forged on our
// own channel is decided as ours.
func TestBG21BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		_, port, _ := net.SplitHostPort(echo(t))
		rule := func(name string) string {
			return fmt.Sprintf("    - {name: %s, ports: [%s], resolve: [127.0.0.1]}\n", name, port)
		}
		a, ours := serveReal(t, rule("a.test"))
		b, theirs := serveReal(t, rule("b.test"))
		// What a runtime mounts for A: its own channel, and its program.
		hide := "cd " + filepath.Dir(prober(t)) + "\nmount -t tmpfs none /run\nmkdir /run/c /run/p\nmount --bind " + filepath.Dir(a.path) + " /run/c\nmount --bind . /run/p\nmount -t tmpfs none /tmp\ncd /"
		out, code := contained(t, hide, append(append([]string{"/run/p/skep-init", "run"}, flags...), "/run/c/s", "/run/p/probe",
			"unix="+b.path, "reach=a.test:"+port, "reach=b.test:"+port, "forged=/run/c/s b.test:"+port)...)
		if code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		got := read(out)
		if got["unix="+b.path] != "no such file or directory" || got["reach=a.test:"+port] != "hello" || got["reach=b.test:"+port] == "hello" || !strings.HasPrefix(got["forged=/run/c/s b.test:"+port], "HTTP/1.1 403 ") {
			t.Errorf("%q", got)
		}
		if ours.reasons()["tcp b.test:"+port] != "not-on-allowlist" {
			t.Errorf("%q", ours.reasons())
		}
		if text, _ := os.ReadFile(theirs.records); bytes.Contains(text, []byte("intent")) || bytes.Contains(text, []byte("denied")) {
			t.Errorf("the other boundary has %s", text)
		}
	})
}

// TestUserGuest: with --user the agent has that user's ids and no power, and skep-init keeps
// the one to end it (G25).
func TestUserGuest(t *testing.T) {
	b := serveBoundary(t, map[string]string{"ok.test:7080": echo(t)})
	dir := filepath.Dir(prober(t))
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out, code := container(t, "", "run", "--user", "65534:65534", b.path, prober(t), "caps=", "threads=", "writable=/etc/hosts /etc/resolv.conf", "signal=", "reach=ok.test:7080")
	if code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	got := read(out)
	if !strings.Contains(got["caps="], "CapEff:0000000000000000") || got["signal="] != "operation not permitted" || got["reach=ok.test:7080"] != "hello" || got["writable=/etc/hosts /etc/resolv.conf"] != "" {
		t.Errorf("%q", got)
	}
	if !strings.Contains(got["threads="], "CapEff:0000000000000020") || strings.Contains(got["threads="], "CapEff:00000000a") {
		t.Errorf("skep-init has %q", got["threads="])
	}
}
