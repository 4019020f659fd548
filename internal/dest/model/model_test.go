package model

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2"
	"skep.dev/skep/internal/policy"
)

// lab is a gate with the model destination and a gateway behind it.
type lab struct {
	mu      sync.Mutex
	records []boundary.Record
	seen    []*http.Request
	bodies  []string
	answer  http.HandlerFunc
	bytes   *boundary.Bytes
	idle    time.Duration
	cell    context.Context // its life; nil lasts
}

func (l *lab) Record(_ context.Context, r boundary.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return nil
}

func (l *lab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.seen = append(l.seen, r)
	l.mu.Unlock()
	if l.answer != nil {
		l.answer(w, r)
		return
	}
	b, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	l.bodies = append(l.bodies, string(b))
	l.mu.Unlock()
	io.WriteString(w, "fine")
}

// gateway serves the lab as skep-model serves its end.
func (l *lab) gateway(t *testing.T) (*h2.Conn, *http.Server) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: l, Protocols: &protocols}
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Close() })
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := h2.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, s
}

func (l *lab) requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

// connect gives the agent's end; wait ends when the flow is over.
func (l *lab) connect(t *testing.T) (agent net.Conn, wait func() boundary.Record) {
	t.Helper()
	gateway, _ := l.gateway(t)
	return l.through(t, gateway)
}

func (l *lab) through(t *testing.T, gateway *h2.Conn) (agent net.Conn, wait func() boundary.Record) {
	t.Helper()
	g := &boundary.Gate{
		Identity: boundary.Identity{Cell: "c", Agent: "a.example"}, Recorder: l, Refusals: boundary.NewRefusals(l, time.Now),
		Model: Dest{Gateway: func() (*h2.Conn, func()) { return gateway, func() {} }}, Flows: 9, Bytes: l.bytes, Idle: l.idle, Now: time.Now,
	}
	if err := g.Install(policy.Policy{Model: true}); err != nil {
		t.Fatal(err)
	}
	agent, box := pair(t)
	done := make(chan struct{})
	ctx := l.cell
	if ctx == nil {
		ctx = context.Background()
	}
	go func() {
		defer close(done)
		g.Serve(ctx, flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Name: "mesh.skep.alt", Port: 80, Count: 1}, boundary.Connected{Conn: box})
	}()
	_ = agent.SetDeadline(time.Now().Add(20 * time.Second))
	return agent, func() boundary.Record {
		agent.Close()
		<-done
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.records[len(l.records)-1]
	}
}

func exchange(t *testing.T, c net.Conn, r *bufio.Reader, request string) (*http.Response, string) {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a, string(body)
}

// BC-40: only the exact paths reach the gateway.
func TestBC40Paths(t *testing.T) {
	for request, status := range map[string]int{
		"GET /v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                                        200,
		"GET /v1/models?x=/../y HTTP/1.1\r\nHost: MESH.skep.alt:80\r\n\r\n":                             200,
		"POST /v1/chat/completions HTTP/1.1\r\nHost: mesh.skep.alt\r\nContent-Length: 2\r\n\r\n{}":      200,
		"POST /v1/chat/completions HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 2\r\n\r\n{}":          421,
		"GET /v1/models HTTP/1.1\r\nHost: mesh.skep.alt:81\r\n\r\n":                                     421,
		"GET /v1/models/ HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                                       403,
		"GET /v1//models HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                                       403,
		"GET /v1/x/../models HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                                   403,
		"GET /v1/%6dodels HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                                      403,
		"GET http://mesh.skep.alt/v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                    403,
		"GET /healthz HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                                          403,
		"DELETE /v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                                     403,
		"GET /v1/chat/completions HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                              403,
		"POST /v1/messages HTTP/1.1\r\nHost: mesh.skep.alt\r\nContent-Length: 2\r\n\r\n{}":              403,
		"CONNECT mesh.skep.alt:80 HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                              403,
		"GET /v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 200,
	} {
		l := &lab{}
		c, wait := l.connect(t)
		a, body := exchange(t, c, bufio.NewReader(c), request)
		r := wait()
		if a.StatusCode != status || l.requests() != map[bool]int{true: 1}[status == 200] {
			t.Errorf("%.60q: %d, %d reached the gateway", request, a.StatusCode, l.requests())
		}
		if status == 200 {
			if r.Decision != "allow" {
				t.Errorf("%+v", r)
			}
			continue
		}
		if a.Header.Get("Boundary-Reason") == "" || len(a.Header["Proxy-Status"]) != 1 || !strings.Contains(body, a.Header.Get("Boundary-Reason")) || r.Decision != "block" {
			t.Errorf("%.60q: %v %q %+v", request, a.Header, body, r)
		}
	}
}

// B75: identity is ours, Authorization the agent's.
func TestIdentityIsOurs(t *testing.T) {
	l := &lab{}
	c, wait := l.connect(t)
	exchange(t, c, bufio.NewReader(c), "GET /v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\nAuthorization: Bearer k\r\nX-Skep-Agent: root\r\nx-skep-flow: 1\r\nX_Skep_Agent: root\r\nX-SKEP-Other: 1\r\nX-Skepx: keep\r\n\r\n")
	r := wait()
	h := l.seen[0].Header
	if h.Get("Authorization") != "Bearer k" || h.Get("X-Skepx") != "keep" {
		t.Errorf("%v", h)
	}
	for key, v := range h {
		low := strings.ToLower(strings.ReplaceAll(key, "_", "-"))
		switch {
		case !strings.HasPrefix(low, "x-skep-"):
		case key == "X-Skep-Agent" && len(v) == 1 && v[0] == "a.example":
		case key == "X-Skep-Flow" && len(v) == 1 && v[0] == r.Request.ID.String():
		default:
			t.Errorf("%s: %v reached the gateway", key, v)
		}
	}
}

// B76: each event is passed on when it comes, without an end in sight.
func TestStreamIsFlushedAtOnce(t *testing.T) {
	events, w := io.Pipe()
	l := &lab{answer: func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		rw.(http.Flusher).Flush()
		for lines := bufio.NewScanner(events); lines.Scan(); {
			fmt.Fprintln(rw, lines.Text())
			rw.(http.Flusher).Flush()
		}
	}}
	c, wait := l.connect(t)
	go io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: mesh.skep.alt\r\nContent-Length: 2\r\n\r\n{}")
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(a, err)
	}
	lines := bufio.NewReader(a.Body)
	for i := range 3 {
		fmt.Fprintf(w, "data: %d\n", i)
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatal(line, err)
		}
	}
	w.Close()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
	wait()
}

func TestDeadGateway(t *testing.T) {
	l := &lab{}
	gateway, server := l.gateway(t)
	server.Close()
	c, wait := l.through(t, gateway)
	a, body := exchange(t, c, bufio.NewReader(c), "GET /v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n")
	if r := wait(); a.StatusCode != 502 || r.Verdict.Reason != flow.NoProvider || r.Decision != "fail" {
		t.Errorf("%d %+v", a.StatusCode, r)
	}
	if !strings.Contains(body, "config.yaml") {
		t.Errorf("it does not say what to configure: %s", body)
	}
}

// Every refusal is one that an SDK of the API can read.
func TestRefusalsAreErrorsOfTheAPI(t *testing.T) {
	for why := flow.None; why < 255; why++ {
		if why.Status() == 0 {
			continue
		}
		a, err := http.ReadResponse(bufio.NewReader(strings.NewReader(refusal(why))), nil)
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			Error struct{ Message, Type, Code string }
		}
		if err := json.NewDecoder(a.Body).Decode(&body); err != nil || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v: %v", why, err)
		}
		if e := body.Error; e.Message == "" || e.Code != why.Token() || (e.Type == "server_error") != (a.StatusCode >= 500) {
			t.Errorf("%v: %+v", why, e)
		}
	}
}

// A gateway that breaks off breaks the answer off: it must not look whole.
func TestBrokenAnswer(t *testing.T) {
	for _, length := range []string{"", "100"} {
		l := &lab{answer: func(w http.ResponseWriter, r *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}}
		c, wait := l.connect(t)
		io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n")
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(a.Body); err == nil || string(b) != "half" {
			t.Errorf("%q %v", b, err)
		}
		wait()
	}
}

// Many requests on one connection, pipelined ones too, with both kinds of bodies,
// each with its own answer.
func TestKeptConnection(t *testing.T) {
	l := &lab{answer: func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Method == "POST" && r.Header.Get("Content-Length") != "" {
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		}
		w.Write(b)
	}}
	c, wait := l.connect(t)
	const host = " HTTP/1.1\r\nHost: mesh.skep.alt\r\n"
	large := strings.Repeat("0123456789abcdef", 20000)
	go func() {
		for i := range 20 {
			fmt.Fprintf(c, "POST /v1/chat/completions%sContent-Length: %d\r\n\r\n%s", host, len(large)+1, fmt.Sprintf("%c%s", 'a'+i, large))
			fmt.Fprintf(c, "POST /v1/chat/completions%sTransfer-Encoding: chunked\r\n\r\n2\r\n%c!\r\n0\r\n\r\n", host, 'a'+i)
			fmt.Fprintf(c, "HEAD /v1/models%s\r\n", host)
		}
		fmt.Fprintf(c, "GET /v1/models%sConnection: close\r\n\r\n", host)
	}()
	in := bufio.NewReader(c)
	take := func(method, want string) {
		t.Helper()
		a, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(a.Body); err != nil || string(b) != want || a.StatusCode != 200 {
			t.Fatalf("status %d, %d bytes, want %d, %v", a.StatusCode, len(b), len(want), err)
		}
	}
	for i := range 20 {
		take("POST", fmt.Sprintf("%c%s", 'a'+i, large))
		take("POST", fmt.Sprintf("%c!", 'a'+i))
		take("HEAD", "")
	}
	take("GET", "")
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after Connection: close: %v", err)
	}
	if r := wait(); r.Up < uint64(20*len(large)) || r.Down < uint64(20*len(large)) || r.Decision != "allow" {
		t.Errorf("%+v", r)
	}
}

// A client that asks first is told to go on, and an old one that it is too old (B76).
func TestContinueAndOldClients(t *testing.T) {
	l := &lab{}
	c, wait := l.connect(t)
	in := bufio.NewReader(c)
	io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: mesh.skep.alt\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatal(line, err)
	}
	in.ReadString('\n')
	if a, body := exchange(t, c, in, "{}"); a.StatusCode != 200 || body != "fine" || l.bodies[0] != "{}" {
		t.Errorf("%v %q %q", a, body, l.bodies)
	}
	if l.seen[0].Header.Get("Expect") != "" {
		t.Error("Expect is of this connection alone")
	}
	wait()
	c, wait = l.connect(t)
	io.WriteString(c, "GET /v1/models HTTP/1.0\r\nHost: mesh.skep.alt\r\nConnection: X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 1\r\n\r\n")
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 505 ") || !strings.Contains(string(got), flow.UnsupportedVersion.Sentence()) {
		t.Errorf("%q %v", got, err)
	}
	if r := wait(); r.Verdict.Reason != flow.UnsupportedVersion || len(l.seen) != 1 {
		t.Errorf("%+v, %d requests arrived", r, len(l.seen))
	}
	c, wait = l.connect(t)
	io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\nConnection: X-Mine, close\r\nX-Mine: 1\r\nKeep-Alive: 1\r\n\r\n")
	if got, err = io.ReadAll(c); err != nil || !strings.Contains(string(got), "fine") {
		t.Errorf("%q %v", got, err)
	}
	if h := l.seen[1].Header; h.Get("X-Mine") != "" || h.Get("Keep-Alive") != "" {
		t.Errorf("%v", h)
	}
	wait()
}

// An agent that goes away does not leave its request running.
func TestAgentGoesAway(t *testing.T) {
	asked, over := make(chan struct{}), make(chan struct{})
	l := &lab{answer: func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(asked)
		<-r.Context().Done()
		close(over)
	}}
	c, wait := l.connect(t)
	io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: mesh.skep.alt\r\nContent-Length: 2\r\n\r\n{}")
	<-asked
	c.Close()
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("the gateway still works for nobody")
	}
	wait()
}

// An answer before the end of the request ends the connection after it.
func TestEarlyAnswer(t *testing.T) {
	l := &lab{answer: func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	}}
	c, wait := l.connect(t)
	io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: mesh.skep.alt\r\nContent-Length: 1000000\r\n\r\n{}")
	in := bufio.NewReader(c)
	a, err := http.ReadResponse(in, nil)
	if err != nil || a.StatusCode != 413 {
		t.Fatal(a, err)
	}
	io.Copy(io.Discard, a.Body)
	if _, err := in.ReadByte(); err != io.EOF {
		t.Error(err)
	}
	wait()
}

// What could be read as two requests, or is none, reaches nothing.
func TestSmuggling(t *testing.T) {
	const line = "POST /v1/chat/completions HTTP/1.1\r\nHost: mesh.skep.alt\r\n"
	for request, status := range map[string]string{
		line + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}":                 "400",
		line + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": "400",
		line + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n":                "400",
		line + " folded: x\r\n\r\n":                                               "400",
		line + "Host: mesh.skep.alt\r\n\r\n":                                      "400",
		"POST /v1/chat/completions HTTP/1.1\r\n\r\n":                              "400",
		"GET /v1/models HTTP/1.1\nHost: mesh.skep.alt\n\n":                        "",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                        "",
	} {
		l := &lab{}
		c, wait := l.connect(t)
		io.WriteString(c, request)
		got, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(got), map[bool]string{true: "HTTP/1.1 " + status}[status != ""]) || status == "" && len(got) > 0 || l.requests() > 0 {
			t.Errorf("%q: %q, %d reached the gateway", request, got, l.requests())
		}
		if r := wait(); r.Decision != "block" {
			t.Errorf("%q: %+v", request, r)
		}
	}
}

func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestZeroPermitOpensNothing(t *testing.T) {
	if _, err := (Dest{}).Open(context.Background(), boundary.Permit{}); err == nil {
		t.Error("opened without a permit")
	}
}
