package boundary

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
)

// What people hit with tools of this kind, part D, each by its id (docs/field-reports.md).

// sh runs a line of the shell in a cell, and returns what it printed.
func (h *host) sh(line string) string {
	h.t.Helper()
	r := h.Try("run", "--yes", "--quiet", "--profile", h.profile, "--", "sh", "-c", line)
	h.t.Logf("%s: %d %q %q", line, r.Code, r.Out, r.Err)
	return strings.TrimSpace(r.Out)
}

// has skips a part of a test where the host lacks a program that cells can see, and says so.
func has(t *testing.T, program string) bool {
	t.Helper()
	at, err := exec.LookPath(program)
	if err == nil && (strings.HasPrefix(at, "/usr/") || strings.HasPrefix(at, "/bin/")) {
		return true
	}
	t.Logf("%s is not on this machine: its part is not tried", program)
	return false
}

// TestN05WebSocket: frames of every kind pass after the 101, and a socket that is idle stays;
// five minutes of it are tests/soak's.
func TestN05WebSocket(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ws.test", public4)
		lab.HTTP(public4+":7080", http.HandlerFunc(socketServer))
		h := open(t, lab, "net: [{name: ws.test, ports: [7080], http: true}]\n")
		idle := longTime(5*time.Minute, 300*time.Millisecond)
		h.Patience += idle
		if r := h.try(attempt{How: "websocket", At: "ws.test:7080", N: int(idle.Milliseconds())})[0]; r.Got != "whole" || r.Err != "" {
			t.Errorf("%+v", r)
		}
	})
}

// TestN06LongStream: a stream with gaps has every event; nothing counts its whole time. Ten
// minutes of it are tests/soak's, and the idle bound has a clock of its own in TestN06IdleBound.
func TestN06LongStream(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("events.test", public4)
		gap := longTime(30*time.Second, 100*time.Millisecond)
		lab.HTTP(public4+":7080", eventServer(20, gap))
		h := open(t, lab, "net: [{name: events.test, ports: [7080]}]\n")
		h.Patience += 20 * gap
		if r := h.try(attempt{How: "events", At: "events.test:7080"})[0]; r.Got != "20" || r.Err != "" {
			t.Errorf("%+v", r)
		}
	})
}

// TestN07Uploads: bodies of every size and form arrive whole.
func TestN07Uploads(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("up.test", public4)
		lab.HTTPS(public4+":443", http.HandlerFunc(countUpload))
		h := open(t, lab, "net: [{name: up.test}]\n")
		var tries []attempt
		for _, n := range []int{1 << 10, 135 << 10, 1 << 20, 50 << 20} {
			for _, how := range []string{"", "expect", "chunked"} {
				tries = append(tries, attempt{How: "upload", At: "up.test:443", N: n, Say: how})
			}
		}
		for _, r := range h.try(tries...) {
			if r.Got != "the same" || r.Err != "" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestN08NodeFetch: node's fetch works without a variable.
func TestN08NodeFetch(t *testing.T) {
	needs(t, "node")
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ok.test", public4)
		lab.HTTP(public4+":7080", nil)
		h := open(t, lab, "net: [{name: ok.test, ports: [7080]}]\n")
		const fetch = `node -e 'for (const u of ["http://ok.test:7080/", "http://no.test:7080/"]) await fetch(u).then(r => r.text()).then(t => console.log(t), e => console.log(e.cause.code))' --input-type=module`
		if got := h.sh(fetch); got != "hello\nECONNREFUSED" {
			t.Errorf("node says %q", got)
		}
	})
}

// TestN09JavaFetch: the JVM's clients, old and new, work without a variable or a property.
func TestN09JavaFetch(t *testing.T) {
	needs(t, "java")
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ok.test", public4)
		lab.HTTP(public4+":7080", nil)
		h := open(t, lab, "net: [{name: ok.test, ports: [7080]}]\n")
		h.Write("Fetch.java", `
import java.net.*; import java.net.http.*;
class Fetch { public static void main(String[] a) throws Exception {
  URI u = URI.create("http://ok.test:7080/");
  System.out.println(new String(u.toURL().openStream().readAllBytes()));
  System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(u).build(), HttpResponse.BodyHandlers.ofString()).body());
  try { URI.create("http://no.test:7080/").toURL().openStream(); } catch (ConnectException e) { System.out.println("refused"); }
} }`)
		config := ""
		if at, err := filepath.EvalSymlinks("/usr/bin/java"); err == nil { // Debian's keeps its configuration in /etc
			for _, dir := range []string{"/etc/java-" + javaOf(at) + "-openjdk", "/etc/alternatives"} {
				if _, err := os.Stat(dir); err == nil {
					config += "  - {path: " + dir + ", rights: ro}\n"
				}
			}
		}
		h.paths += config
		h.Rules("net: [{name: ok.test, ports: [7080]}]\n")
		if got := h.sh("java -XX:TieredStopAtLevel=1 Fetch.java"); got != "hello\nhello\nrefused" {
			t.Errorf("java says %q", got)
		}
	})
}

// javaOf is the number in a path such as /usr/lib/jvm/java-17-openjdk-amd64/bin/java.
func javaOf(path string) string {
	_, after, _ := strings.Cut(path, "/java-")
	number, _, _ := strings.Cut(after, "-")
	return number
}

// TestN10RawTCP: an allowed name and port work for whatever speaks TCP; no other port does.
func TestN10RawTCP(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("tcp.test", public4)
		for _, port := range []string{"5222", "6379", "7081"} {
			lab.Echo(public4 + ":" + port)
		}
		lab.Serve(public4+":5432", postgres)
		h := open(t, lab, "net: [{name: tcp.test, ports: [5222, 5432, 6379]}]\n")
		r := h.try(attempt{How: "tcp", At: "tcp.test:5222", Say: "<stream>"}, attempt{How: "tcp", At: "tcp.test:6379", Say: "PING\r\n"}, attempt{How: "tcp", At: "tcp.test:7081"})
		if r[0].Got != "<stream>" || r[1].Got != "PING\r\n" || r[2].Err != "ECONNREFUSED" {
			t.Errorf("%+v", r)
		}
		h.refused(h.record(), "tcp.test:7081", "port-not-allowed")
		if has(t, "psql") {
			if got := h.sh("PGCONNECT_TIMEOUT=10 timeout 20 psql -h tcp.test -U u -d d -A -t -c 'select 1' 2>&1"); got != "42" {
				t.Errorf("psql says %q", got)
			}
		}
	})
}

// postgres is as much of a server as one query needs.
func postgres(c net.Conn) {
	read := func(n int) []byte {
		b := make([]byte, n)
		for at := 0; at < n; {
			m, err := c.Read(b[at:])
			if err != nil {
				return nil
			}
			at += m
		}
		return b
	}
	for { // startup, after refusals of TLS and GSS
		head := read(8)
		if head == nil {
			return
		}
		length := int(head[2])<<8 | int(head[3])
		if head[4] == 4 {
			_, _ = c.Write([]byte("N"))
			continue
		}
		read(length - 8)
		break
	}
	_, _ = c.Write([]byte("R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I"))
	if read(5) == nil {
		return
	}
	_, _ = c.Write([]byte("T\x00\x00\x00\x1a\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x19\xff\xff\xff\xff\xff\xff\x00\x00" +
		"D\x00\x00\x00\x0c\x00\x01\x00\x00\x00\x0242" + "C\x00\x00\x00\rSELECT 1\x00" + "Z\x00\x00\x00\x05I"))
	for read(1) != nil { // until it is over
	}
}

// TestN16NoNameLeaves: whatever is asked of the cell's resolver, however often, no question
// leaves the host for a name without a rule, of any type; there is a rate; and what is then
// tried is in the record.
func TestN16NoNameLeaves(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("cdn.test", public4)
		lab.HTTPS(public4+":443", nil)
		lab.UDPEcho("8.8.8.8:53")
		h := open(t, lab, "net: [{name: cdn.test}]\n")
		var tries []attempt
		for i := range 20 {
			for _, kind := range []string{"A", "AAAA", "TXT"} {
				tries = append(tries, attempt{How: "dns", At: resolver, Say: fmt.Sprintf("c2vjcmv0%d.evil.test %s", i, kind)})
			}
		}
		tries = append(tries, attempt{How: "dns", At: "8.8.8.8:53", Say: "secret.evil.test A"}, attempt{How: "tcp", At: "c2vjcmv00.evil.test:443"},
			// DNS over HTTPS at another name, of a host that is allowed: the name in the handshake is not.
			attempt{How: "tls", At: "cdn.test:443", Say: "dns.evil.test"}, attempt{How: "tls", At: "cdn.test:443", Say: "cdn.test"})
		r := h.try(tries...)
		if n := len(r); r[n-3].Err != "ECONNREFUSED" || r[n-2].reached() || r[n-1].Err != "" {
			t.Errorf("%+v", r[n-3:])
		}
		for _, q := range lab.Queries() {
			if q.Name != "cdn.test" {
				t.Errorf("a question left: %+v", q)
			}
		}
		if d := lab.Datagrams(); len(d) != 0 {
			t.Errorf("datagrams arrived: %v", d)
		}
		record := h.record()
		h.refused(record, "c2vjcmv00.evil.test:443", "not-on-allowlist")
		h.refused(record, "cdn.test:443", "tls-name-mismatch")
	})
}

// TestN17NamesAreDialedFromTheHost: a name that moves with each question works each time; a
// name that leads to another's address leads there by the allowed port alone; an address that
// the agent itself gives a name has no right.
func TestN17NamesAreDialedFromTheHost(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		moving := []string{"1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"}
		for _, a := range moving {
			lab.Echo(a + ":7080")
		}
		lab.Rotate("cdn.test", moving...)
		const evil = "9.9.9.9"
		lab.Alias("alias.test", "evil.test", evil)
		lab.Host("evil.test", evil)
		for _, port := range []string{":7080", ":7081", ":443"} {
			lab.Echo(evil + port)
		}
		h := open(t, lab, "net: [{name: cdn.test, ports: [7080]}, {name: alias.test, ports: [7080]}, {name: ok.test}]\n")
		tries := slices.Repeat([]attempt{{How: "tcp", At: "cdn.test:7080"}}, 6)
		tries = append(tries, attempt{How: "tcp", At: "alias.test:7081"}, attempt{How: "tcp", At: "evil.test:7080"}, attempt{How: "tcp", At: evil + ":7080"}, attempt{How: "tcp", At: evil + ":443"})
		r := h.try(tries...)
		for _, x := range r[:6] {
			if x.Got != "hello" {
				t.Errorf("%+v", x)
			}
		}
		for _, x := range r[6:] {
			if x.Err != "ECONNREFUSED" {
				t.Errorf("%+v", x)
			}
		}
		if has(t, "curl") {
			if got := h.sh("curl -sk -m 10 --resolve ok.test:443:" + evil + " https://ok.test/; echo $?"); got != "7" {
				t.Errorf("curl --resolve ends with %q", got)
			}
		}
		for _, at := range h.arrived(0) {
			if strings.HasPrefix(at, evil) {
				t.Errorf("%s was reached", at)
			}
		}
	})
}

// TestN18AllowedNameIsEnough: under a rule for one name the libraries' own resolvers find it, and a connect works.
func TestN18AllowedNameIsEnough(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("only.test", public4)
		lab.HTTP(public4+":7080", nil)
		h := open(t, lab, "net: [{name: only.test, ports: [7080]}]\n")
		if got := h.sh("getent ahosts only.test >/dev/null && echo found"); got != "found" {
			t.Errorf("getent says %q", got)
		}
		if has(t, "curl") {
			if got := h.sh("curl -s -m 10 http://only.test:7080/"); got != "hello" {
				t.Errorf("curl says %q", got)
			}
		}
		if r := h.try(attempt{How: "tcp", At: "other.test:7080"}, attempt{How: "http", At: "only.test:7080", Say: "only.test:7080"}); r[0].Err != "ECONNREFUSED" || r[1].Got != "200" {
			t.Errorf("%+v", r)
		}
	})
}

// TestN20EachDatagramIsJudged: of two messages of one call the second is judged by itself.
// That another thread changes the address changes nothing is tests/attack's TestN20ChangedAddress.
func TestN20EachDatagramIsJudged(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.UDPEcho("1.1.1.1:7000")
		lab.UDPEcho("9.9.9.9:7000")
		h := open(t, lab, "net: [{ip: 1.1.1.1, ports: [7000], transports: [udp]}]\n")
		r := h.try(attempt{How: "batch", At: "1.1.1.1:7000", Say: "9.9.9.9:7000"}, attempt{How: "batch", At: "9.9.9.9:7000", Say: "1.1.1.1:7000"})
		for _, x := range r {
			if strings.Contains(x.Got, "to 9.9.9.9") {
				t.Errorf("%+v", x)
			}
		}
		if !strings.Contains(r[0].Got, "to 1.1.1.1:7000") {
			t.Errorf("what is allowed does not work: %+v", r[0])
		}
		for _, d := range lab.Datagrams() {
			if d.To.String() != "1.1.1.1:7000" {
				t.Errorf("%v got %q", d.To, d.Payload)
			}
		}
		h.refused(h.record(), "9.9.9.9:7000", "ip-not-on-allowlist")
	})
}

// TestN21UnixSocketsOfTheCell: they work in full, with descriptors passed.
func TestN21UnixSocketsOfTheCell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		h := open(t, lab, "")
		if r := h.try(attempt{How: "unix sockets"})[0]; r.Err != "" {
			t.Errorf("%+v", r)
		}
	})
}

// TestN26OnePortInTwoCells: two cells have a server on one port at one time, each its own.
func TestN26OnePortInTwoCells(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		var both sync.WaitGroup
		both.Add(2)
		lab.Serve(public4+":7080", func(c net.Conn) {
			both.Done()
			both.Wait()
			_, _ = c.Write([]byte("x"))
		})
		h := open(t, lab, "net: [{ip: "+public4+", ports: [7080]}]\n")
		results := make(chan string, 2)
		for range 2 {
			go func() {
				out := h.Skep(h.command([]attempt{{How: "together", At: public4 + ":7080", Say: "127.0.0.1:8000"}})...)
				results <- out
			}()
		}
		for range 2 {
			if out := <-results; !strings.Contains(out, `"Got":"mine"`) {
				t.Error(out)
			}
		}
		if has(t, "python3") && has(t, "curl") {
			got := h.sh("python3 -m http.server 8000 --bind ::1 >/dev/null 2>&1 & for i in $(seq 100); do curl -s -o /dev/null -w '%{http_code}' 'http://[::1]:8000/' && break; sleep 0.1; done; kill $!")
			if !strings.HasSuffix(got, "200") {
				t.Errorf("a test server of python's: %q", got)
			}
		}
	})
}

// TestN27Wildcards: *.x matches what stands below x and not x; the validator says so.
func TestN27Wildcards(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		for _, name := range []string{"wild.test", "a.wild.test", "b.a.wild.test", "notwild.test"} {
			lab.Host(name, public4)
		}
		lab.Echo(public4 + ":7080")
		h := open(t, lab, "net: [{name: \"*.wild.test\", ports: [7080]}]\n")
		r := h.try(attempt{How: "tcp", At: "a.wild.test:7080"}, attempt{How: "tcp", At: "b.a.wild.test:7080"}, attempt{How: "tcp", At: "wild.test:7080"}, attempt{How: "tcp", At: "notwild.test:7080"})
		if r[0].Got != "hello" || r[1].Got != "hello" || r[2].Err != "ECONNREFUSED" || r[3].Err != "ECONNREFUSED" {
			t.Errorf("%+v", r)
		}
		if got := h.Skep("check", "--json", h.profile); !strings.Contains(got, "below wild.test") {
			t.Errorf("skep check says %s", got)
		}
	})
}

// TestN29QUICIsRefusedAtOnce: UDP to an allowed host's 443 fails at the send, not in silence, so that clients take TCP.
func TestN29QUICIsRefusedAtOnce(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("h3.test", public4)
		lab.HTTPS(public4+":443", nil)
		lab.UDPEcho(public4 + ":443")
		h := open(t, lab, "net: [{name: h3.test}]\n")
		r := h.try(attempt{How: "udp", At: "h3.test:443"}, attempt{How: "tls", At: "h3.test:443", Say: "h3.test"})
		if r[0].Err != "ECONNREFUSED" && r[0].Err != "EPERM" || r[0].Millis > 1000 || r[1].Err != "" {
			t.Errorf("%+v", r)
		}
		if len(lab.Datagrams()) != 0 {
			t.Errorf("datagrams arrived: %v", lab.Datagrams())
		}
	})
}

// TestN30NoContainersInACell: what docker build and buildah need is refused with a word, not a hang.
func TestN30NoContainersInACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		h := open(t, lab, "")
		r := h.try(attempt{How: "unix", At: "/var/run/docker.sock"}, attempt{How: "unix", At: "/run/podman/podman.sock"}, attempt{How: "unshare"})
		if r[0].Err != "ENOENT" || r[1].Err != "ENOENT" || r[2].Err != "EPERM" {
			t.Errorf("%+v", r)
		}
		if has(t, "unshare") {
			if got := h.sh("unshare --user --map-root-user true 2>&1"); !strings.Contains(got, "Operation not permitted") {
				t.Errorf("unshare says %q", got)
			}
		}
	})
}

// TestC02OnlyItsOwnProcesses: /proc shows the cell's, and of its parent what is the cell's.
func TestC02OnlyItsOwnProcesses(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		h := open(t, lab, "")
		got := strings.Fields(h.sh("for p in /proc/[0-9]*; do echo ${p#/proc/}; done; echo parent $(sed -n 's/^Name:.//p' /proc/$PPID/status 2>/dev/null)"))
		for _, word := range got {
			if n, err := strconv.Atoi(word); err == nil && n > 64 {
				t.Errorf("a cell sees process %d: %q", n, got)
			}
		}
		if self := fmt.Sprint(os.Getpid()); slices.Contains(got, self) {
			t.Errorf("a cell sees us, %s", self)
		}
	})
}

// TestC03C04C05Environment: an agent's environment is the profile's and Skep's; nothing of the
// caller's is in it or in PID 1's; and what the profile sets is in no argument, no other
// environment and no log on the host.
func TestC03C04C05Environment(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		const callers, set = "callers-canary-5d41", "profiles-canary-402a"
		h := open(t, lab, "")
		h.Env = append(h.Env, "AWS_SECRET_ACCESS_KEY="+callers, "PASSED=yes", "LD_PRELOAD=")
		h.profile = h.Beside("profile.yaml", h.paths+"env: {pass: [PASSED], set: {TOKEN: "+set+"}}\n")
		r := h.beginProgram("sh", "-c", "env | cut -d= -f1 | sort | tr '\\n' ' '; echo; tr '\\0' '\\n' </proc/1/environ 2>/dev/null | wc -c; read go")
		names := strings.Fields(r.line(t))
		for _, name := range names {
			if !slices.Contains([]string{"HOME", "LOGNAME", "PASSED", "PATH", "PWD", "SHELL", "SHLVL", "TMPDIR", "TOKEN", "USER", "_", "OLDPWD"}, name) {
				t.Errorf("a cell has %s", name)
			}
		}
		if n := strings.TrimSpace(r.line(t)); n != "0" {
			t.Errorf("PID 1 shows %s bytes of environment", n)
		}
		agent := []string{"sh", "tr", "wc"} // they end after what they said is read
		h.nowhere(set, agent)
		h.nowhere(callers, append(agent, "skep")) // the caller's own environment is the caller's
		_, _ = fmt.Fprintln(r.in, "go")
		_ = r.cmd.Wait()
	})
}

// nowhere demands that no process of the host but the named shows a word in arguments or
// environment, and that skepd's log and the ledger do not.
func (h *host) nowhere(word string, but []string) {
	h.t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, p := range processes {
		name, _ := os.ReadFile(p + "/comm")
		if slices.Contains(but, strings.TrimSpace(string(name))) {
			continue
		}
		for _, file := range []string{"cmdline", "environ"} {
			if text, _ := os.ReadFile(p + "/" + file); strings.Contains(string(text), word) {
				h.t.Errorf("%s of %s (%s) shows it", file, p, strings.TrimSpace(string(name)))
			}
		}
	}
	for _, pattern := range []string{"run/*.log", "state/ledger/*", "state/ledger/*/*"} {
		files, _ := filepath.Glob(filepath.Join(h.Dir, pattern))
		for _, f := range files {
			if text, _ := os.ReadFile(f); strings.Contains(string(text), word) {
				h.t.Errorf("%s has it", f)
			}
		}
	}
}

// TestN28BehindAProxy: one setting of the operator takes all egress by an HTTP proxy with a
// password; what names resolve to is judged before it is asked, so that nobody reaches the
// proxy's own network by it.
func TestN28BehindAProxy(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("proxy.test", "5.5.5.5")
		lab.Host("far.test", public4)
		lab.Host("inside.test", "10.0.0.1")
		lab.Echo(public4 + ":7080")
		lab.Echo("10.0.0.1:7080")
		var asked []string
		var mu sync.Mutex
		lab.HTTP("5.5.5.5:3128", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, r.Method+" "+r.RequestURI+" "+r.Header.Get("Proxy-Authorization"))
			mu.Unlock()
			there, err := net.Dial("tcp", r.RequestURI)
			here, ok := w.(http.Hijacker)
			if err != nil || !ok {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			defer func() { _ = there.Close() }()
			c, _, err := here.Hijack()
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			go func() { _, _ = io.Copy(there, c) }()
			_, _ = io.Copy(c, there)
		}))
		h := open(t, lab, "net: [{name: \"*.test\", ports: [7080]}]\n")
		lab.Ceiling("proxy: {url: \"http://proxy.test:3128\", credential: \"file:" + h.Beside("password", "user:word\n") + "\"}\n")
		r := h.try(attempt{How: "tcp", At: "far.test:7080"}, attempt{How: "tcp", At: "inside.test:7080"})
		if r[0].Got != "hello" || r[1].reached() {
			t.Errorf("%+v", r)
		}
		h.refused(h.record(), "inside.test:7080", "resolved-address-denied")
		if want := []string{"CONNECT " + public4 + ":7080 Basic dXNlcjp3b3Jk"}; !slices.Equal(asked, want) {
			t.Errorf("the proxy was asked for %q, want %q", asked, want)
		}
	})
}
