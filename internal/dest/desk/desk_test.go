package desk

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// people write down what they are asked.
type people struct{ asked []string }

func (p *people) Draft(_ context.Context, host string, port uint16, t flow.Transport, why string) (string, error) {
	p.asked = append(p.asked, fmt.Sprintf("%s:%d/%s %s", host, port, t, why))
	return fmt.Sprint("card", len(p.asked)), nil
}

func (p *people) State(_ context.Context, card string) (string, error) {
	return map[string]string{"card1": "granted"}[card], nil
}

type records struct{}

func (records) Record(context.Context, boundary.Record) error { return nil }

// nothing is a connection that is already refused.
type nothing struct{}

func (nothing) Refuse(flow.Reason, string) {}
func (nothing) Open() net.Conn             { return nil }

// at is a desk that tells of some refusals, as an agent's HTTP client reaches it.
func at(t *testing.T, p People, refused ...flow.Request) (*Dest, func(request string) *http.Response) {
	t.Helper()
	gate := &boundary.Gate{Identity: boundary.Identity{Cell: "c"}, Recorder: records{}, Refusals: boundary.NewRefusals(records{}, time.Now), Denials: &boundary.Denials{}, Now: time.Now, Flows: 9}
	if err := gate.Install(policy.Policy{Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	for _, q := range refused {
		gate.Serve(context.Background(), q, nothing{})
	}
	d := New(gate.Denials, p)
	return d, func(request string) *http.Response {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		agent, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		box, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go (&session{desk: d, idle: time.Minute}).Carry(context.Background(), box)
		t.Cleanup(func() { _ = agent.Close() })
		if _, err := io.WriteString(agent, request); err != nil {
			t.Fatal(err)
		}
		method, _, _ := strings.Cut(request, " ")
		a, err := http.ReadResponse(bufio.NewReader(agent), &http.Request{Method: method})
		if err != nil {
			t.Fatal(request, err)
		}
		return a
	}
}

func tried(host string, port uint16) flow.Request {
	return flow.Request{ID: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Name: host, Port: port, Count: 1, Cell: "c"}
}

func get(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: policy.skep.alt\r\n\r\n"
}

func post(body string) string {
	return fmt.Sprintf("POST /requests HTTP/1.1\r\nHost: policy.skep.alt\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// BC-49: a cell reads its own refusals, with reason and line, and nothing else.
func TestBC49Denials(t *testing.T) {
	_, ask := at(t, nil, tried("a.test", 443), tried("b.test", 80), tried("a.test", 443))
	a := ask(get("/denials"))
	var list []denial
	if err := json.NewDecoder(a.Body).Decode(&list); err != nil || a.StatusCode != 200 || len(list) != 2 {
		t.Fatal(a, err, list)
	}
	if d := list[1]; d.Destination != "a.test:443" || d.Count != 2 || d.Reason != "not-on-allowlist" || d.Allow != "- {name: a.test}" || d.Policy != "v1" || d.Sentence == "" {
		t.Errorf("%+v", d)
	}
	if a.Header.Get("Proxy-Status") != "" || a.Header.Get("Boundary-Reason") != "" {
		t.Errorf("%v", a.Header)
	}
	var one denial
	if err := json.NewDecoder(ask(get("/denials/" + list[0].ID)).Body).Decode(&one); err != nil || one.Destination != "b.test:80" {
		t.Errorf("%+v, %v", one, err)
	}
	for request, want := range map[string]int{
		get("/"): 200, get("/denials/x"): 404, get("/policy"): 404, get("/requests/card1"): 404, get("/requests"): 405, post(`{"name": "a.test"}`): 404,
		"POST /denials HTTP/1.1\r\nHost: policy.skep.alt\r\n\r\n":                                                       405,
		"PUT /denials HTTP/1.1\r\nHost: policy.skep.alt\r\n\r\n":                                                        405,
		"DELETE /denials HTTP/1.1\r\nHost: policy.skep.alt\r\n\r\n":                                                     405,
		"HEAD /denials HTTP/1.1\r\nHost: policy.skep.alt\r\n\r\n":                                                       200,
		"GET / HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n":                                                                 421,
		"GET / HTTP/1.1\r\nHost: policy.skep.alt\r\nBad Header: x\r\n\r\n":                                              400,
		"POST /requests HTTP/1.1\r\nHost: policy.skep.alt\r\nContent-Length: 99999\r\n\r\n" + strings.Repeat("x", 5000): 413,
	} {
		if a := ask(request); a.StatusCode != want {
			t.Errorf("%.40q: %d, want %d", request, a.StatusCode, want)
		}
	}
}

// The list is bounded, and what is refused most recently is last.
func TestDenialsAreBounded(t *testing.T) {
	var many []flow.Request
	for i := range boundary.KeptDenials + 50 {
		many = append(many, tried(fmt.Sprintf("h%d.test", i), 443))
	}
	d, _ := at(t, nil, many...)
	if list := d.Denials.List(); len(list) != boundary.KeptDenials || list[len(list)-1].Request.Name != many[len(many)-1].Name {
		t.Errorf("%d are kept", len(list))
	}
}

// B232: a draft is one exact destination; what it is not is refused before anybody is
// asked, and so is the seventh in a minute.
func TestBC49Drafts(t *testing.T) {
	p := &people{}
	_, ask := at(t, p, tried("a.test", 8443))
	for _, body := range []string{
		`{"name": "*.a.test"}`, `{"name": "*"}`, `{"name": "10.0.0.0/8"}`, `{"name": "x.alt"}`, `{}`, `{"name": "a.test", "denial": "x"}`, `{"denial": "x"}`,
		`{"name": "a.test", "ports": [1]}`, `{"name": "a.test", "transport": "sctp"}`, `{"name": "a.test", "port": 70000}`, `[]`, `{"name": "a.test"} {}`,
		`{"name": "a.test", "why": "` + strings.Repeat("x", MaxWhy+1) + `"}`, `{"name": "a.test", "why": "two\nlines"}`, "",
	} {
		if a := ask(post(body)); a.StatusCode != 400 {
			t.Errorf("%s: %d", body, a.StatusCode)
		}
	}
	if len(p.asked) != 0 {
		t.Fatalf("people were asked %q", p.asked)
	}
	var list []denial
	_ = json.NewDecoder(ask(get("/denials")).Body).Decode(&list)
	for i, body := range []string{
		`{"name": "B.test.", "why": "\u001fno"}`, `{"name": "B.test.", "why": "é <b>"}`, `{"denial": "` + list[0].ID + `"}`, `{"name": "::1", "port": 53, "transport": "udp"}`,
	} {
		a := ask(post(body))
		if want := map[bool]int{true: 400, false: 202}[i == 0]; a.StatusCode != want {
			t.Errorf("%s: %d, want %d", body, a.StatusCode, want)
		}
	}
	want := []string{"b.test:443/tcp é <b>", "a.test:8443/tcp ", "::1:53/udp "}
	if strings.Join(p.asked, "|") != strings.Join(want, "|") {
		t.Errorf("people were asked %q, want %q", p.asked, want)
	}
	for range DraftRate - 3 {
		if a := ask(post(`{"name": "c.test"}`)); a.StatusCode != 202 || !strings.HasPrefix(a.Header.Get("Location"), "/requests/card") {
			t.Errorf("%v", a)
		}
	}
	if a := ask(post(`{"name": "c.test"}`)); a.StatusCode != 429 || a.Header.Get("Retry-After") == "" {
		t.Errorf("%v", a)
	}
	if a := ask(get("/requests/card1")); a.StatusCode != 200 {
		t.Errorf("%v", a)
	}
	if a := ask(get("/requests/other")); a.StatusCode != 404 {
		t.Errorf("%v", a)
	}
}

// A permit for another destination opens nothing.
func TestZeroPermitIsRefused(t *testing.T) {
	if _, err := (&Dest{}).Open(context.Background(), boundary.Permit{}); err == nil {
		t.Error("it opens")
	}
}
