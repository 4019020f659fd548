package cases

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// answerTime bounds what a boundary takes to answer.
const answerTime = 10 * time.Second

// Answer is what a boundary said, and the connection behind it.
type Answer struct {
	Status int
	Line   string
	Fields map[string][]string // by their names in lower case
	Conn   net.Conn
	Rest   *bufio.Reader
}

// Send sends bytes on a new connection, P replaced, and reads one answer's head.
func (x *Boundary) Send(raw string) *Answer {
	x.b.Helper()
	c, err := net.Dial(x.network, x.at)
	if err != nil {
		x.b.Fatalf("connect to the boundary: %v", err)
	}
	x.b.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(answerTime))
	// A boundary may answer and close before it has read all.
	go func() { _, _ = io.WriteString(c, x.b.with(raw)) }()
	return x.answer(c)
}

func (x *Boundary) answer(c net.Conn) *Answer {
	x.b.Helper()
	a := &Answer{Fields: map[string][]string{}, Conn: c, Rest: bufio.NewReader(c)}
	for {
		line, err := a.Rest.ReadString('\n')
		if err != nil {
			x.b.Fatalf("read the answer: %v after %q", err, line)
		}
		line = strings.TrimSuffix(line, "\r\n")
		switch key, value, ok := strings.Cut(line, ":"); {
		case a.Line == "":
			a.Line = line
			if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &a.Status); err != nil {
				x.b.Fatalf("no status: %q", line)
			}
		case line == "":
			return a
		case !ok:
			x.b.Fatalf("no field: %q", line)
		default:
			key = strings.ToLower(key)
			a.Fields[key] = append(a.Fields[key], strings.TrimSpace(value))
		}
	}
}

// Opens sends a request that has to succeed.
func (x *Boundary) Opens(raw string) *Answer {
	x.b.Helper()
	a := x.Send(raw)
	if a.Status != 200 {
		x.b.Fatalf("%.60q: %s %v, want 200", raw, a.Line, a.Fields)
	}
	for _, key := range []string{"content-length", "transfer-encoding"} {
		if len(a.Fields[key]) > 0 {
			x.b.Errorf("%.60q: a success has %s (B38)", raw, key)
		}
	}
	return a
}

// Echoes sends a text through an open tunnel, and has it back.
func (a *Answer) Echoes(b *Bench, text string) {
	b.Helper()
	if _, err := io.WriteString(a.Conn, text); err != nil {
		b.Fatalf("write into the tunnel: %v", err)
	}
	a.Returns(b, text)
}

// Returns reads what has to come back.
func (a *Answer) Returns(b *Bench, text string) {
	b.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(a.Rest, got); err != nil || string(got) != text {
		b.Fatalf("the tunnel gave %q, %v; want %q", got[:n], err, text)
	}
}

// registered are the error types of RFC 9209, 2.3, that a boundary sends.
func registered() []string {
	return []string{"dns_timeout", "dns_error", "destination_unavailable", "destination_ip_prohibited", "connection_refused", "connection_timeout",
		"connection_limit_reached", "http_request_error", "http_request_denied", "http_protocol_error", "proxy_internal_error", "proxy_configuration_error"}
}

// payload stands behind every request that has to be refused.
const payload = "payload-that-nobody-may-see"

// Refused sends a request that has to be refused so, and looks at all that this means.
func (x *Boundary) Refused(raw string, status int, token string) *Answer {
	x.b.Helper()
	dials, before := x.b.echo.count(), x.denials(token)
	a := x.Send(raw + payload)
	x.shape(raw, a, status, token)
	if x.b.echo.count() != dials || x.b.echo.has(payload) {
		x.b.Errorf("%.60q: something was dialed", raw)
	}
	if !await(15*time.Second, func() bool { return x.denials(token) > before }) {
		x.b.Errorf("%.60q: no record with %s: %+v", raw, token, x.Records())
	}
	return a
}

// shape looks at one refusal (B39, B60, B61, B63).
func (x *Boundary) shape(raw string, a *Answer, status int, token string) {
	x.b.Helper()
	if a.Status != status {
		x.b.Errorf("%.60q: %s, want %d %s", raw, a.Line, status, token)
	}
	proxy, why := a.Fields["proxy-status"], a.Fields["boundary-reason"]
	if len(proxy) != 1 || len(why) != 1 {
		x.b.Errorf("%.60q: Proxy-Status %q, Boundary-Reason %q: want one of each", raw, proxy, why)
		return
	}
	kind, rest, ok := strings.Cut(strings.TrimPrefix(proxy[0], "skep; error="), "; reason=")
	if !ok || rest != token || !slices.Contains(registered(), kind) || strings.Contains(proxy[0], ",") {
		x.b.Errorf("%.60q: Proxy-Status %q, want %s", raw, proxy[0], token)
	}
	if len(why[0]) == 0 || len(why[0]) >= 120 {
		x.b.Errorf("%.60q: Boundary-Reason %q", raw, why[0])
	}
	if !slices.Equal(a.Fields["content-length"], []string{"0"}) || !slices.Equal(a.Fields["connection"], []string{"close"}) {
		x.b.Errorf("%.60q: %v: want Content-Length: 0 and Connection: close", raw, a.Fields)
	}
	if status == 405 && len(a.Fields["allow"]) != 1 || status == 503 && len(a.Fields["retry-after"]) != 1 {
		x.b.Errorf("%.60q: %v: 405 has Allow, and 503 has Retry-After", raw, a.Fields)
	}
	if rest := readAll(a.Rest); rest != "" {
		x.b.Errorf("%.60q: %q follows the refusal", raw, rest)
	}
}

// denials counts the records of refusals with a token, of which a failure to reach what
// was allowed is an outcome.
func (x *Boundary) denials(token string) (n int) {
	for _, r := range x.Records() {
		if (r.Kind == "denied" || r.Kind == "outcome") && r.Reason == token {
			n++
		}
	}
	return n
}

// get is a whole CONNECT to an authority.
func get(authority string) string {
	return "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n"
}
