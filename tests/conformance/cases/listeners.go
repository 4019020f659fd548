package cases

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// listeners are about the socket, its budget, its policy and its records.
func listeners() []Case {
	return []Case{
		{ID: "BC-31", What: "a connection over the budget is refused before its head", Run: budget},
		{ID: "BC-32", What: "a refusal has one Proxy-Status, one Boundary-Reason, and nothing of the guest's", Run: refusalShape},
		{ID: "BC-33", What: "curl --proxy", Run: curl},
		{ID: "BC-34", What: "two listeners: each its own policy, budget and end", Run: two},
		{ID: "BC-35", What: "the policy is replaced under open flows", Run: swap},
		{ID: "BC-36", What: "no policy, no start", Run: noPolicy},
		{ID: "BC-37", What: "the record sink has stopped", Run: noRecords},
		{ID: "BC-38", What: "what may be a socket's path", Run: paths},
		{ID: "BC-47", What: "a hold: the answer opens or refuses, nobody's answer refuses in time, one too many is refused at once", Run: hold},
		{ID: "BC-48", What: "1,000 hostile names leave the metric label sets as they were", Run: labelSets},
	}
}

func budget(b *Bench) {
	x := b.Start(Setting{Flags: []string{"--max-flows", "1"}})
	var first *Answer
	// Who looked whether it listens may still have the one place.
	if !await(answerTime, func() bool { first = x.Send(get("127.0.0.1:P")); return first.Status == 200 }) {
		b.Fatalf("%s", first.Line)
	}
	x.shape("nothing was sent", x.Send(""), 503, "busy")
	first.Echoes(b, "alive")
	x.Await("that it was full", func(r Record) bool { return r.Reason == "busy" && r.Decision == "fail" })
}

func refusalShape(b *Bench) {
	x := b.Start(Setting{})
	const mark = "guest-wrote-this"
	for raw, want := range map[string]string{
		get(mark + ".test:P"): "not-on-allowlist", "CONNECT ok.test:P HTTP/1.1\r\nHost: " + mark + ".test:P\r\n\r\n": "authority-mismatch",
		mark + " / HTTP/1.1\r\nHost: x\r\n\r\n": "connect-only", get("ok.test:" + mark): "malformed-port",
	} {
		status := map[string]int{"not-on-allowlist": 403, "connect-only": 405}[want]
		if status == 0 {
			status = 400
		}
		a := x.Refused(raw, status, want)
		if strings.Contains(fmt.Sprint(a.Line, a.Fields), mark) {
			b.Errorf("%.60q: the answer repeats the guest: %s %v", raw, a.Line, a.Fields)
		}
	}
}

func curl(b *Bench) {
	program, err := exec.LookPath("curl")
	if err != nil {
		b.Skipf("there is no curl")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("reached\n")) }))
	b.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	x := b.Start(Setting{TCP: true, Allow: "    - {name: ok.test, ports: [" + port + "], resolve: [127.0.0.1]}\n"})
	fetch := func(host string) (string, error) {
		out, err := exec.Command(program, "--silent", "--show-error", "--max-time", "10", "--proxytunnel", "--proxy", "http://"+x.at, "http://"+host+":"+port+"/").CombinedOutput()
		return string(out), err
	}
	if out, err := fetch("ok.test"); err != nil || out != "reached\n" {
		b.Errorf("%q, %v", out, err)
	}
	if out, err := fetch("no.test"); err == nil || !strings.Contains(out, "403") {
		b.Errorf("%q, %v", out, err)
	}
}

func two(b *Bench) {
	x := b.Start(Setting{Flags: []string{"--max-flows", "1"}})
	y := b.Start(Setting{Allow: "    - {name: other.test, ports: [P], resolve: [127.0.0.1]}\n"})
	var mine *Answer
	if !await(answerTime, func() bool { mine = x.Send(get("ok.test:P")); return mine.Status == 200 }) {
		b.Fatalf("%s", mine.Line)
	}
	theirs := y.Opens(get("other.test:P"))
	mine.Echoes(b, "counted") // before what must not dial is sent
	theirs.Echoes(b, "counted")
	y.Refused(get("ok.test:P"), 403, "not-on-allowlist")
	x.shape("nothing was sent", x.Send(""), 503, "busy")
	y.Opens(get("other.test:P")).Echoes(b, "x") // the other's budget is its own
	x.Stop()
	if rest := readAll(mine.Rest); rest != "" {
		b.Errorf("%q at the end", rest)
	}
	theirs.Echoes(b, "alive")
	if _, err := net.Dial(x.network, x.at); err == nil {
		b.Errorf("a closed listener accepts")
	}
	x.Await("that it was ended", func(r Record) bool { return r.Kind == "outcome" && r.Reason == "revoked" })
}

func swap(b *Bench) {
	x, other := b.Start(Setting{}), b.Start(Setting{})
	loses, keeps, apart := x.Opens(get("ok.test:P")), x.Opens(get("127.0.0.1:P")), other.Opens(get("ok.test:P"))
	first := x.Await("of the first policy", func(r Record) bool { return r.Kind == "intent" })
	x.Write("    - {nonsense: 1}\n")
	x.Reload()
	loses.Echoes(b, "an invalid policy changes nothing")
	x.Write("    - {id: ip4, ip: 127.0.0.1, ports: [P]}\n")
	began := time.Now()
	x.Reload()
	if rest := readAll(loses.Rest); rest != "" || time.Since(began) > 2*time.Second {
		b.Errorf("%q after %s: a flow without a right ends within 1 s", rest, time.Since(began))
	}
	keeps.Echoes(b, "still allowed")
	apart.Echoes(b, "another listener") // and all three dials are counted
	x.Refused(get("ok.test:P"), 403, "not-on-allowlist")
	second := x.Await("of the second policy", func(r Record) bool { return r.Kind == "denied" })
	if first.Policy == second.Policy || second.Policy == "" {
		b.Errorf("policies %q and %q", first.Policy, second.Policy)
	}
	x.Await("that it lost its right", func(r Record) bool { return r.Kind == "outcome" && r.Reason == "revoked" })
}

// hold has flows wait for a person, whose answer is another policy.
func hold(b *Bench) {
	const asks = "    - {name: ok.test, ports: [P], resolve: [127.0.0.1], ask: true, hold: 60s}\n    - {name: short.test, ports: [P], ask: true, hold: 1s}\n"
	x := b.Start(Setting{Allow: asks})
	began := time.Now()
	x.Refused(get("short.test:P"), 403, "approval-needed")
	if took := time.Since(began); took < time.Second || took > 3*time.Second {
		b.Errorf("a hold of 1 s took %s", took)
	}
	const most = 32
	heads := make(chan string, 2*most)
	for range most + 1 {
		go x.head(get("ok.test:P"), heads)
	}
	expect := func(when string, n int, status, reason string) {
		b.Helper()
		for range n {
			if head := <-heads; !strings.Contains(head, status) || !strings.Contains(head, reason) {
				b.Errorf("%s: %q, want %s %s", when, head, status, reason)
			}
		}
	}
	expect("one too many", 1, " 403 ", "approval-needed")
	x.Await("that they are held", func(r Record) bool { return r.Kind == "held" && r.Decision == "ask" && r.Reason == "approval-needed" })
	if n := b.echo.count(); n != 0 {
		b.Errorf("%d dials before the answer", n)
	}
	x.Write("    - {name: ok.test, ports: [P], resolve: [127.0.0.1]}\n    - {name: no.test, ports: [P], resolve: [127.0.0.1], ask: true, hold: 60s}\n")
	x.Reload()
	expect("after the yes", most, " 200 ", "")
	go x.head(get("no.test:P"), heads)
	x.Await("that it is held", func(r Record) bool { return r.Kind == "held" && strings.HasPrefix(r.Destination, "no.test") })
	x.Write("    - {name: ok.test, ports: [P]}\n")
	x.Reload()
	expect("after the no", 1, " 403 ", "not-on-allowlist")
}

// head sends a request whose answer may take long, and gives its head.
func (x *Boundary) head(raw string, to chan<- string) {
	c, err := net.Dial(x.network, x.at)
	if err != nil {
		to <- err.Error()
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, err = io.WriteString(c, x.b.with(raw))
	head, in := "", bufio.NewReader(c)
	for err == nil && !strings.HasSuffix(head, "\r\n\r\n") {
		var line string
		line, err = in.ReadString('\n')
		head += line
	}
	to <- head
}

func noPolicy(b *Bench) {
	for _, allow := range []string{"    - {nonsense: 1}\n", "    - {name: \"a.*\"}\n"} {
		if said := b.Refuses(Setting{Allow: allow}); !strings.Contains(said, "bundle.yaml:5:") {
			b.Errorf("%q: %s", allow, said)
		}
	}
}

func noRecords(b *Bench) {
	x := b.Start(Setting{})
	open := x.Opens(get("127.0.0.1:P"))
	x.Halt()
	a := x.Send(get("127.0.0.1:P"))
	x.shape("allowed", a, 503, "record-unavailable")
	if a := x.Send(get("no.test:P")); a.Status != 403 {
		b.Errorf("denied: %s", a.Line)
	}
	open.Echoes(b, "what is open stays open")
	if n := b.echo.count(); n != 1 {
		b.Errorf("%d dials", n)
	}
	x.Resume()
	if !await(answerTime, func() bool { return x.Send(get("127.0.0.1:P")).Status == 200 }) {
		b.Errorf("the sink runs again, and nothing opens")
	}
}

func paths(b *Bench) {
	dir := filepath.Join(b.Dir, "paths")
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatalf("%v", err)
	}
	live := b.Start(Setting{Socket: filepath.Join(dir, "live")})
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		b.Fatalf("%v", err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 105-len(dir)-1))
	for path, want := range map[string]string{long: "105", live.at: "another boundary is already listening", plain: "no socket"} {
		if said := b.Refuses(Setting{Socket: path}); !strings.Contains(said, want) {
			b.Errorf("%s: %s", path, said)
		}
	}
	live.Opens(get("127.0.0.1:P")).Echoes(b, "untouched")
	dead := filepath.Join(dir, "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		b.Fatalf("%v", err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	x := b.Start(Setting{Socket: dead})
	x.Opens(get("127.0.0.1:P")).Echoes(b, "replaced")
	if info, err := os.Stat(dead); err != nil || info.Mode().Perm() != 0o600 {
		b.Errorf("%v, %v: the socket's mode is 0600 (B30)", info, err)
	}
	x.Stop()
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		b.Errorf("the socket is there after the end: %v", err)
	}
}

func labelSets(b *Bench) {
	at := b.freePort()
	x := b.Start(Setting{Flags: []string{"--metrics", at}})
	read := func() (sets []string, all string) {
		a, err := http.Get("http://" + at + "/metrics")
		if err != nil {
			b.Fatalf("read the metrics: %v", err)
		}
		defer func() { _ = a.Body.Close() }()
		all = readAll(a.Body)
		return regexp.MustCompile(`\{[^}]*\}`).FindAllString(all, -1), all
	}
	x.Refused(get("hostile.test:P"), 403, "not-on-allowlist")
	var before []string
	known := func() bool { // a refusal is counted when it is recorded
		sets, all := read()
		before = sets
		return strings.Contains(all, `refusals_total{reason="not-on-allowlist"} 1`)
	}
	if !await(10*time.Second, known) {
		b.Errorf("a refusal was not counted")
	}
	for i := range 1000 {
		_ = x.Send(get(fmt.Sprintf("hostile-%d.test:P", i))).Conn.Close()
	}
	counted := func() bool {
		_, all := read()
		return strings.Contains(all, `refusals_total{reason="not-on-allowlist"} 1001`)
	}
	if !await(20*time.Second, counted) { // those above 200 a second are recorded 10 s later
		b.Errorf("not all refusals were counted")
	}
	if after, all := read(); !slices.Equal(before, after) || strings.Contains(all, "hostile") || strings.Contains(all, "cell.example") {
		b.Errorf("%q, then %q", before, after)
	}
}
