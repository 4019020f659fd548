package start

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestGI10Guest: a cold start with the next slice hands out nothing of the last one, and
// what the last one handed out has no name; the 65th has IPv6 only.
func TestGI10Guest(t *testing.T) {
	b := serveBoundary(t, map[string]string{"a.test:80": echo(t)})
	for slice, want := range map[string]string{"0": "100.64.0.1 100::1", "1": "100.65.0.1 100:0:0:0:1::1", "63": "100.127.0.1 100:0:0:0:3f::1", "64": "100:0:0:0:40::1"} {
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
	before := len(b.requests())
	expect(t, probe(t, b, []string{"--pool-slice", "1", "--generation", "2"}, "tcp=100.64.0.1:80", "tcp=a.test:80"), map[string]string{"tcp=100.64.0.1:80": "connection refused", "tcp=a.test:80": "hello"})
	if asked := b.requests()[before:]; !slices.Contains(asked, "tcp 100.64.0.1:80") {
		t.Errorf("an old address was asked for as %q", asked)
	}
	if out, code := guest(t, b, []string{"--pool-slice", "65536"}, "/bin/true"); code != 125 {
		t.Errorf("a slice that does not exist: %d %s", code, out)
	}
}

// TestBG26Guest: a generation that has lost its table is refused, or gets a slice that none
// had; its box has recorded it, with the policy that it is bound to, before the guest runs
// (G81, G83). Fifty forks give no address twice.
func TestBG26Guest(t *testing.T) {
	_, port, _ := net.SplitHostPort(echo(t))
	b, box := serveReal(t, allow("ok.test", port), "--generation", "7", "--pool-slice", "3")
	recorded := box.lines()
	if len(recorded) != 1 || recorded[0]["kind"] != "attached" || recorded[0]["generation"] != 7.0 || recorded[0]["pool_slice"] != 3.0 || recorded[0]["policy"] == nil {
		t.Errorf("before the guest runs: %v", recorded)
	}
	if out, code := guest(t, b, []string{"--generation", "7"}, "/bin/echo", "started"); code != 125 || !strings.Contains(out, "skep-init: generation 7 has no table") || strings.Contains(out, "started") {
		t.Errorf("without a slice: %d %s", code, out)
	}
	expect(t, probe(t, b, []string{"--generation", "7", "--pool-slice", "3"}, "tcp=ok.test:"+port, "tcp=100.64.0.1:"+port), map[string]string{"tcp=ok.test:" + port: "hello", "tcp=100.64.0.1:" + port: "connection refused"})
	for _, r := range box.lines() {
		if r["generation"] != 7.0 || r["policy"] != recorded[0]["policy"] {
			t.Errorf("%v", r)
		}
	}
	seen := map[string]int{}
	for fork := range 50 {
		child := serveBoundary(t, nil)
		n := strconv.Itoa(fork)
		for _, a := range strings.Fields(probe(t, child, []string{"--generation", strconv.Itoa(8 + fork), "--pool-slice", n}, "lookup=fork-"+n+".test")["lookup=fork-"+n+".test"]) {
			if other, ok := seen[a]; ok {
				t.Errorf("%s was given out by %d and by %d", a, other, fork)
			}
			seen[a] = fork
		}
	}
	if len(seen) < 50 {
		t.Errorf("fifty forks gave %d addresses out", len(seen))
	}
}

// TestBU1BU3BU4BU11Guest: datagrams by connect-udp to Skep's own boundary; a name for TCP
// only refuses them at once, and TCP to it works.
func TestBU1BU3BU4BU11Guest(t *testing.T) {
	_, tcp, _ := net.SplitHostPort(echo(t))
	_, udp, _ := net.SplitHostPort(echoUDP(t))
	b, records := serveReal(t, fmt.Sprintf("    - {name: udp.test, ports: [%s], transports: [udp], resolve: [127.0.0.1]}\n", udp)+allow("tcp.test", tcp))
	expect(t, probe(t, b, []string{"--udp"}, "udp=udp.test:"+udp, "udp=tcp.test:"+tcp, "udp=8.8.8.8:443", "tcp=tcp.test:"+tcp), map[string]string{
		"udp=udp.test:" + udp: "hello", "udp=tcp.test:" + tcp: "connection refused", "udp=8.8.8.8:443": "connection refused", "tcp=tcp.test:" + tcp: "hello",
	})
	got := records.reasons()
	if got["udp tcp.test:"+tcp] != "transport-not-allowed" || got["udp 8.8.8.8:443"] != "ip-not-on-allowlist" {
		t.Errorf("%q", got)
	}
}

// TestBG28BothRoutes is the checklist: interfaces, visible sockets, the channel's owner and
// mode, raw sockets and tracing, capabilities, descriptors, abstract sockets, and who may
// write what decides and what is recorded. The order of a revocation is BG-22's.
func TestBG28BothRoutes(t *testing.T) {
	bothRoutes(t, func(t *testing.T, flags []string) {
		b, box := serveReal(t, allow("ok.test", "80"))
		dir := filepath.Dir(b.path)
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the channel's directory: %v, %v", info, err)
		}
		if info, err := os.Stat(b.path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the channel: %v, %v", info, err)
		}
		if info, err := os.Stat(box.records); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the records: %v, %v", info, err)
		}
		// What a runtime mounts: the channel and the program, both read-only.
		script := "cd " + filepath.Dir(prober(t)) + "\nmount -t tmpfs none /run\nmkdir /run/c /run/p\nmount --bind " + dir + " /run/c\nmount --bind . /run/p\nmount -o remount,bind,ro /run/c\nmount -o remount,bind,ro /run/p\nmount -t tmpfs none /tmp\ncd /"
		attempts := []string{"ifaces=", "sockets=", "raw=", "packet=", "ptrace=", "descriptor=", "threads=", "fds=", "writable=" + b.path + " " + box.records + " /run/c /run/p/skep-init /run/p/probe", "unix=/run/c/s"}
		out, code := contained(t, script, append(append(append([]string{"/run/p/skep-init", "run"}, flags...), "/run/c/s", "/run/p/probe"), attempts...)...)
		if code != 0 {
			t.Fatalf("%d %s", code, out)
		}
		got := read(out)
		interfaces := map[string]string{"tun": "lo tun0", "explicit": "lo"}[flags[1]]
		expect(t, got, map[string]string{
			"ifaces=": interfaces, "sockets=": "", "raw=": "operation not permitted", "packet=": "operation not permitted", "ptrace=": "operation not permitted",
			"descriptor=": "operation not permitted", "fds=": "0 1 2", attempts[8]: "", "unix=/run/c/s": "connected",
		})
		if strings.Contains(got["threads="], "NoNewPrivs:0") {
			t.Errorf("%q", got["threads="])
		}
		// Records are appended to: what is there stays, whatever comes.
		before, _ := os.ReadFile(box.records)
		_ = probe(t, b, flags, "reach=denied.test:80")
		if after, _ := os.ReadFile(box.records); !bytes.HasPrefix(after, before) || len(after) == len(before) {
			t.Errorf("%d bytes of records, then %d", len(before), len(after))
		}
	})
}
