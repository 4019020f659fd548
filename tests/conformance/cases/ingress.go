package cases

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ingress is section 14, as the boundary's own two sockets show it: callers on one side, and
// on the other a guest that speaks the handshake of the reverse channel.
func ingress() []Case {
	return []Case{
		{ID: "BI-1", What: "HTTP form: the pinned port is asked for, what comes with the answer is not lost, recorded direction in", Run: delivered},
		{ID: "BI-2", What: "a caller that names another port or address reaches the pinned one or nothing", Run: pinned},
		{ID: "BI-3", What: "what is no HTTP is closed, and the agent sees none of it", Run: noHTTP},
		{ID: "BI-4", What: "text form, behind a monitor's own handshake, its answer and the agent's first bytes in one packet; ERR is 502", Run: textForm},
		{ID: "BI-5", What: "a generation that was revoked: its callers end, its successor gets nothing of them", Run: revokedRoute},
		{ID: "BI-6", What: "a caller without credentials -> 403, no reverse connection", Run: strangers},
		{ID: "BI-7", What: "serves without a reverse channel, or one without serves -> no start", Run: noReverse},
		{ID: "BI-8", What: "the agent's card is asked for; an agent that has died -> 502, recorded", Run: agentDies},
		{ID: "BI-9", What: "a caller's credentials are not seen inside, in head or trailer, unless the bundle says so; streams and upgrades pass", Run: credentials},
	}
}

// guest is the agent's side: it answers handshakes, and then is the agent.
type guest struct {
	b       *Bench
	path    string
	monitor string // the answer of a monitor in front, if there is one
	text    bool
	refuse  bool
	agent   func(c net.Conn, r *bufio.Reader) // after the handshake; r may hold its first bytes
	early   string                            // of the agent, in the packet of the answer

	mu    sync.Mutex
	asked []string // first lines of handshakes
}

// begin listens, and gives the setting of a boundary before it.
func (g *guest) begin(b *Bench, serves string, flags ...string) Setting {
	b.Helper()
	g.b, g.path = b, filepath.Join(b.Dir, "guest")
	l, err := net.Listen("unix", g.path)
	if err != nil {
		b.Fatalf("listen as a guest: %v", err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				g.serve(c)
			}()
		}
	}()
	return Setting{Serves: serves, Ingress: true, Flags: append([]string{"--agent-ingress-socket", g.path}, flags...)}
}

func (g *guest) serve(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	r := bufio.NewReader(c)
	if g.monitor != "" {
		g.note(r)
		_, _ = io.WriteString(c, g.monitor)
	}
	g.note(r)
	answer := "OK\n"
	if g.refuse {
		answer = "ERR agent does not listen\n"
	}
	if !g.text {
		for line := "x"; line != "\r\n" && line != ""; {
			line, _ = r.ReadString('\n')
		}
		answer = "HTTP/1.1 200 OK\r\n\r\n"
		if g.refuse {
			answer = "HTTP/1.1 502 ingress unreachable\r\nContent-Length: 0\r\n\r\n"
		}
	}
	if _, err := io.WriteString(c, answer+g.early); err != nil || g.refuse {
		return
	}
	if g.agent != nil {
		g.agent(c, r)
	}
}

func (g *guest) note(r *bufio.Reader) {
	line, _ := r.ReadString('\n')
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, strings.TrimSpace(line))
}

func (g *guest) handshakes() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.asked...)
}

// answers answers each request by what it was: its head, its body and its trailer.
func answers(c net.Conn, r *bufio.Reader) {
	var all strings.Builder
	for chunked := false; ; {
		line, err := r.ReadString('\n')
		all.WriteString(line)
		chunked = chunked || strings.HasPrefix(line, "Transfer-Encoding: chunked")
		if err != nil {
			return
		}
		if line == "\r\n" && (!chunked || strings.Contains(all.String(), "\r\n0\r\n")) {
			break
		}
	}
	_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", all.Len(), all.String())
}

// call sends one request as a caller, and gives everything that comes back.
func (x *Boundary) call(text string) string {
	x.b.Helper()
	c := x.caller()
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, text) // what is refused may be closed before all is read
	all, _ := io.ReadAll(c)
	return string(all)
}

func (x *Boundary) caller() net.Conn {
	x.b.Helper()
	var c net.Conn
	up := func() (ok bool) { // both sockets may not be there at once
		var err error
		c, err = net.Dial("unix", x.ingress)
		return err == nil
	}
	if !await(answerTime, up) {
		x.b.Fatalf("nobody listens for callers")
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

const request = "GET /hello HTTP/1.1\r\nHost: agent.example\r\nConnection: close\r\n\r\n"

// in reports the end of a caller's delivery, and not of a probe.
func in(r Record) bool {
	return r.Direction == "in" && r.Kind == "outcome" && strings.HasPrefix(r.Peer, "uid:")
}

func delivered(b *Bench) {
	g := &guest{agent: answers}
	x := b.Start(g.begin(b, "{name: agent.example, port: 8080}"))
	if got := x.call(request); !strings.HasPrefix(got, "HTTP/1.1 200") || !strings.HasSuffix(got, request) {
		b.Errorf("%q", got)
	}
	r := x.Await("of the delivery", in)
	if r.Destination != "127.0.0.1:8080" || r.Rule != "serves" || r.Decision != "allow" || r.Bytes.Up != uint64(len(request)) || r.Bytes.Down == 0 || r.Wire != "h1" {
		b.Errorf("%+v", r)
	}
	early := &guest{early: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"}
	b.Dir = filepath.Join(b.Dir, "e")
	_ = os.Mkdir(b.Dir, 0o700)
	y := b.Start(early.begin(b, "{name: agent.example, port: 8080}"))
	if got := y.call(request); !strings.HasSuffix(got, "\r\n\r\nhi") {
		b.Errorf("what came with the answer: %q", got)
	}
}

func pinned(b *Bench) {
	g := &guest{agent: answers}
	x := b.Start(g.begin(b, "{name: agent.example, port: 8080}"))
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: 10.0.0.1:9999\r\nConnection: close\r\n\r\n",
		"GET http://10.0.0.1:9999/ HTTP/1.1\r\nHost: 10.0.0.1:9999\r\nConnection: close\r\n\r\n",
		"CONNECT 127.0.0.1:9999 HTTP/1.1\r\nHost: 127.0.0.1:9999\r\n\r\n", "CONNECT 9999\n",
	} {
		if got := x.call(text); strings.HasPrefix(text, "CONNECT") && strings.HasPrefix(got, "HTTP/1.1 2") {
			b.Errorf("%q: %q", text, got)
		}
	}
	for _, asked := range g.handshakes() {
		if asked != "CONNECT 127.0.0.1:8080 HTTP/1.1" {
			b.Errorf("the guest is asked for %q", asked)
		}
	}
}

func noHTTP(b *Bench) {
	got := make(chan string, 8)
	g := &guest{agent: func(_ net.Conn, r *bufio.Reader) {
		all, _ := io.ReadAll(r)
		got <- string(all)
	}}
	x := b.Start(g.begin(b, "{name: agent.example, port: 8080}"))
	for _, text := range []string{"SSH-2.0-caller\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x00\x05hello"} {
		if answer := x.call(text); answer != "" {
			b.Errorf("%q is answered %q", text, answer)
		}
	}
	if answer := x.call("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 400") {
		b.Errorf("a head that is none: %q", answer)
	}
	x.Await("of what is no HTTP", func(r Record) bool { return in(r) && r.Reason == "http-required" && r.Bytes.Up == 0 })
	for range 4 {
		select {
		case all := <-got:
			if all != "" && !strings.HasPrefix(all, "GET /.well-known/agent-card.json ") {
				b.Errorf("the agent sees %q", all)
			}
		case <-time.After(10 * time.Second):
		}
	}
}

func textForm(b *Bench) {
	g := &guest{text: true, monitor: "OK 1073741824\n", early: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"}
	x := b.Start(g.begin(b, "{name: agent.example, port: 8080}", "--ingress-form", "text", "--agent-ingress-vsock-port", "5000"))
	if got := x.call(request); !strings.HasSuffix(got, "\r\n\r\nhi") {
		b.Errorf("%q", got)
	}
	all := g.handshakes() // of the caller and of the probe beside him
	for _, asked := range all {
		if asked != "CONNECT 5000" && asked != "CONNECT 8080" {
			b.Errorf("the guest is asked for %q", asked)
		}
	}
	if !slices.Contains(all, "CONNECT 5000") || !slices.Contains(all, "CONNECT 8080") {
		b.Errorf("%q", all)
	}
	refuses := &guest{text: true, refuse: true}
	b.Dir = filepath.Join(b.Dir, "e")
	_ = os.Mkdir(b.Dir, 0o700)
	y := b.Start(refuses.begin(b, "{name: agent.example, port: 8080}", "--ingress-form", "text"))
	if got := y.call(request); !strings.HasPrefix(got, "HTTP/1.1 502") || !strings.Contains(got, "reason=ingress-unreachable") {
		b.Errorf("%q", got)
	}
	y.Await("of an agent that does not listen", func(r Record) bool { return in(r) && r.Reason == "ingress-unreachable" })
}

func revokedRoute(b *Bench) {
	g := &guest{agent: func(c net.Conn, r *bufio.Reader) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
		_, _ = io.Copy(io.Discard, r) // and never ends
	}}
	s := g.begin(b, "{name: agent.example, port: 8080}", "--generation", "4")
	x := b.Start(s)
	c := x.caller()
	if _, err := io.WriteString(c, request); err != nil {
		b.Fatalf("call: %v", err)
	}
	r := bufio.NewReader(c)
	for line := ""; line != "first\r\n"; {
		var err error
		if line, err = r.ReadString('\n'); err != nil {
			b.Fatalf("before the revocation: %v", err)
		}
	}
	x.Stop()
	if rest, err := io.ReadAll(r); len(rest) > 0 {
		b.Errorf("after the revocation: %q, %v", rest, err)
	}
	if _, err := net.Dial("unix", x.ingress); err == nil {
		b.Errorf("the ingress socket is there after the revocation")
	}
	s.Flags[len(s.Flags)-1] = "5"
	y := b.Start(s)
	before := len(g.handshakes())
	if _, err := io.WriteString(c, request); err == nil {
		if rest, _ := io.ReadAll(c); len(rest) > 0 {
			b.Errorf("the successor answers an old caller: %q", rest)
		}
	}
	for _, r := range y.Records() {
		if in(r) {
			b.Errorf("the successor has a delivery: %+v", r)
		}
	}
	if n := len(g.handshakes()) - before; n > 1 { // its own probe
		b.Errorf("%d deliveries reach the successor's agent", n)
	}
}

func strangers(b *Bench) {
	if os.Geteuid() != 0 {
		b.Skipf("only root can call as another user")
	}
	g := &guest{agent: answers}
	x := b.Start(g.begin(b, "{name: agent.example, port: 8080}"))
	x.Await("of the probe", func(r Record) bool { return r.Peer == "probe" && r.Kind == "outcome" })
	dir := filepath.Dir(x.ingress)
	for at, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o755, x.ingress: 0o666} { // the first wall, taken down
		if err := os.Chmod(at, mode); err != nil {
			b.Fatalf("open the socket to others: %v", err)
		}
	}
	before := len(g.handshakes())
	curl, err := exec.LookPath("curl")
	if err != nil {
		b.Skipf("curl is not installed")
	}
	call := exec.Command(curl, "-sS", "-i", "--max-time", "10", "--unix-socket", x.ingress, "http://agent.example/")
	call.Dir, call.Env = "/", []string{}
	call.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	got, err := call.CombinedOutput()
	if !strings.HasPrefix(string(got), "HTTP/1.1 403") || !strings.Contains(string(got), "reason=identity-unknown") {
		b.Errorf("%q, %v", got, err)
	}
	r := x.Await("of the stranger", func(r Record) bool { return r.Reason == "identity-unknown" })
	if r.Direction != "in" || r.Peer != "uid:65534" || r.Decision != "block" || len(g.handshakes()) != before {
		b.Errorf("%+v, %q", r, g.handshakes())
	}
}

func noReverse(b *Bench) {
	said := b.Refuses(Setting{Serves: "{name: agent.example, port: 8080}"})
	if !strings.Contains(said, "--agent-ingress-socket") {
		b.Errorf("%q", said)
	}
	said = b.Refuses(Setting{Ingress: true, Flags: []string{"--agent-ingress-socket", filepath.Join(b.Dir, "g")}})
	if !strings.Contains(said, "serves") {
		b.Errorf("%q", said)
	}
	for _, serves := range []string{"{port: 8080}", "{name: a}", "{name: a, port: 0}", "{name: a, port: 65536}", "{name: a, port: 65001}", "{name: A, port: 1}", "{name: a, port: 1, to: 2}", "[]"} {
		if said := b.Refuses(Setting{Serves: serves}); !strings.Contains(said, "bundle.yaml:") {
			b.Errorf("%s: %q", serves, said)
		}
	}
}

func agentDies(b *Bench) {
	cards := make(chan string, 8)
	g := &guest{agent: func(c net.Conn, r *bufio.Reader) {
		line, _ := r.ReadString('\n')
		cards <- line
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
	}}
	x := b.Start(g.begin(b, "{name: agent.example, port: 8080}"))
	select {
	case line := <-cards:
		if line != "GET /.well-known/agent-card.json HTTP/1.1\r\n" {
			b.Errorf("the first that the agent sees is %q", line)
		}
	case <-time.After(10 * time.Second):
		b.Errorf("nobody asks for the agent's card")
	}
	_ = os.Remove(g.path)
	if got := x.call(request); !strings.HasPrefix(got, "HTTP/1.1 502") || !strings.Contains(got, "Proxy-Status: skep;") {
		b.Errorf("%q", got)
	}
	if r := x.Await("of an agent that has died", func(r Record) bool { return in(r) && r.Reason == "ingress-unreachable" }); r.Decision != "fail" {
		b.Errorf("%+v", r)
	}
}

const withCredentials = "POST /in HTTP/1.1\r\nHost: agent.example\r\nauthorization: Bearer secret\r\nCookie: session=secret\r\nPROXY-AUTHORIZATION: Basic secret\r\n" +
	"X-Skep-Agent: secret\r\nX-Kept: kept\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\nConnection: close\r\n\r\n" +
	"4\r\nbody\r\n0\r\nAuthorization: secret\r\nX-Sum: kept\r\n\r\n"

func credentials(b *Bench) {
	g := &guest{agent: answers}
	x := b.Start(g.begin(b, "{name: agent.example, port: 8080}"))
	got := x.call(withCredentials)
	if strings.Contains(got, "secret") || !strings.Contains(got, "X-Kept: kept") || !strings.Contains(got, "4\r\nbody\r\n0\r\nX-Sum: kept\r\n") {
		b.Errorf("the agent sees %q", got)
	}
	b.Dir = filepath.Join(b.Dir, "f")
	_ = os.Mkdir(b.Dir, 0o700)
	f := &guest{agent: answers}
	y := b.Start(f.begin(b, "{name: agent.example, port: 8080, credentials: forward}"))
	if got := y.call(withCredentials); !strings.HasSuffix(got, withCredentials) {
		b.Errorf("the agent sees %q", got)
	}
	b.Dir = filepath.Join(b.Dir, "u")
	_ = os.Mkdir(b.Dir, 0o700)
	u := &guest{agent: func(c net.Conn, r *bufio.Reader) {
		line := "x"
		for line != "\r\n" && line != "" {
			line, _ = r.ReadString('\n')
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, r)
	}}
	z := b.Start(u.begin(b, "{name: agent.example, port: 8080}"))
	c := z.caller()
	_, _ = io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: agent.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nCookie: secret\r\n\r\n")
	r := bufio.NewReader(c)
	for line := "x"; line != "\r\n" && line != ""; {
		line, _ = r.ReadString('\n')
	}
	for range 3 { // each piece before the next is sent: nothing is kept back
		_, _ = io.WriteString(c, "\x81\x05frame")
		piece := make([]byte, 7)
		if _, err := io.ReadFull(r, piece); err != nil || string(piece) != "\x81\x05frame" {
			b.Errorf("%q, %v", piece, err)
		}
	}
}
