package model

import (
	"bufio"
	"context"
	"errors"
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
	"skep.dev/skep/internal/policy"
)

// lab is a gate with the model destination and a gateway behind it.
type lab struct {
	mu      sync.Mutex
	records []boundary.Record
	seen    []*http.Request
	answer  func(*http.Request) (*http.Response, error)
}

func (l *lab) Record(_ context.Context, r boundary.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return nil
}

func (l *lab) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.seen = append(l.seen, r)
	answer := l.answer
	l.mu.Unlock()
	if answer != nil {
		return answer(r)
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("fine")), Request: r, ProtoMajor: 2}, nil
}

func (l *lab) requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

// connect gives the agent's end; wait ends when the flow is over.
func (l *lab) connect(t *testing.T) (agent net.Conn, wait func() boundary.Record) {
	t.Helper()
	g := &boundary.Gate{Identity: boundary.Identity{Cell: "c", Agent: "a.example"}, Recorder: l, Refusals: boundary.NewRefusals(l, time.Now), Model: Dest{Gateway: l}, Flows: 9, Now: time.Now}
	if err := g.Install(policy.Policy{Model: true}); err != nil {
		t.Fatal(err)
	}
	agent, box := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Serve(context.Background(), flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Name: "mesh.skep.alt", Port: 80, Count: 1}, box)
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
	l := &lab{answer: func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: events, ContentLength: -1, Request: r}, nil
	}}
	c, wait := l.connect(t)
	go io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: mesh.skep.alt\r\nContent-Length: 2\r\n\r\n{}")
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(a.Body)
	for i := range 3 {
		fmt.Fprintf(w, "data: %d\n", i)
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatal(line, err)
		}
	}
	w.Close()
	wait()
}

func TestDeadGateway(t *testing.T) {
	l := &lab{answer: func(*http.Request) (*http.Response, error) { return nil, errors.New("gone") }}
	c, wait := l.connect(t)
	a, _ := exchange(t, c, bufio.NewReader(c), "GET /v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n")
	if r := wait(); a.StatusCode != 502 || r.Verdict.Reason != flow.NoProvider || r.Decision != "fail" {
		t.Errorf("%d %+v", a.StatusCode, r)
	}
}

func TestZeroPermitOpensNothing(t *testing.T) {
	if _, err := (Dest{}).Open(context.Background(), boundary.Permit{}); err == nil {
		t.Error("opened without a permit")
	}
}
