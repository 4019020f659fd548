package intercept

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
)

// both runs a test for each protocol.
func both(t *testing.T, test func(t *testing.T, protocol string)) {
	for _, protocol := range []string{http1, http2} {
		t.Run(protocol, func(t *testing.T) { test(t, protocol) })
	}
}

func (l *lab) do(method, path string, body io.Reader, fields ...string) (int, string, *http.Response) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, l.url(path), body)
	check(l.t, err)
	for _, f := range fields {
		key, value, _ := strings.Cut(f, ": ")
		r.Header.Add(key, value)
		if key == "Host" {
			r.Host = value
		}
	}
	answer, err := l.client.Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return answer.StatusCode, "cut: " + err.Error(), answer
	}
	return answer.StatusCode, string(text), answer
}

// The destination sees the value, each request alone is judged, and a refusal says why
// (BS-1, BS-3 to BS-6).
func TestRequests(t *testing.T) { both(t, testRequests) }

func testRequests(t *testing.T, protocol string) {
	l := newLab(t, protocol, "api.test", []string{"bearer", "basic", "json:token", "form:token"}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		ok := r.Header.Get("Authorization") == "Bearer "+value || user == "u" && password == value ||
			string(body) == `{"token":"v4l\"ue+/=\\secret"}` || string(body) == "token=v4l%22ue%2B%2F%3D%5Csecret"
		_, _ = fmt.Fprintf(w, "%t %d %d", ok, r.ContentLength, len(body))
	})
	basic := base64.StdEncoding.EncodeToString([]byte("u:" + mark))
	for _, c := range []struct {
		body   string
		fields []string
		status int
		want   string // the answer, or the reason
	}{
		{"", []string{"Authorization: Bearer " + mark}, 200, "true 0 0"},
		{"", []string{"Authorization: Basic " + basic}, 200, "true 0 0"},
		{"", nil, 200, "false 0 0"}, // nothing is carried along
		{`{"token":"` + mark + `"}`, []string{"Content-Type: application/json"}, 200, "true 30 30"},
		{"token=" + mark, []string{"Content-Type: application/x-www-form-urlencoded", "Expect: 100-continue"}, 200, "true 32 32"},
		{"plain text", nil, 200, "false 10 10"},
		{"", []string{"Cookie: a=" + mark}, 403, "secret-misplaced"},
		{"", []string{"User-Agent: " + basic}, 403, "secret-misplaced"},
		{mark, []string{"Content-Type: text/plain"}, 403, "secret-misplaced"},
		{`{"a":"` + mark + `"}`, []string{"Content-Type: application/json"}, 403, "secret-misplaced"},
		{"", []string{"X: skep-secret-gh-ffffffff"}, 403, "secret-unknown"},
		{"", []string{"Authorization: Bearer " + mark, "Host: other.test"}, 421, "http-host-mismatch"},
		{"", []string{"Authorization: Bearer " + mark, "Host: api.test"}, 421, "http-host-mismatch"},
		{strings.Repeat(" ", 300<<10), []string{"Content-Type: application/json"}, 413, "secret-too-large"},
	} {
		var body io.Reader
		if c.body != "" {
			body = strings.NewReader(c.body)
		}
		status, text, answer := l.do("POST", "/p", body, c.fields...)
		if status != 200 && answer != nil {
			text = answer.Header.Get("Proxy-Status")
		}
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%.40q %q: %d %s, want %d %s", c.body, c.fields, status, text, c.status, c.want)
		}
	}
	if l.has(mark) || l.has("gh-ffff") {
		t.Error("a placeholder has arrived")
	}
	want := []string{
		"api.test gh bearer ", "api.test gh basic ", "api.test gh json:token ", "api.test gh form:token ",
		"api.test gh  secret-misplaced",
	}
	if l.mu.Lock(); !slices.Equal(slices.Compact(l.uses)[:5], want) {
		t.Errorf("recorded: %q", l.uses)
	}
	l.deaf = true
	l.mu.Unlock()
	if status, text, _ := l.do("GET", "/", nil, "Authorization: Bearer "+mark); status != 503 {
		t.Errorf("unrecorded: %d %s", status, text)
	}
}

// A body goes on as it comes, whole, and a placeholder in it is found across chunks.
func TestStreamedBodies(t *testing.T) { both(t, testStreamedBodies) }

func testStreamedBodies(t *testing.T, protocol string) {
	l := newLab(t, protocol, "api.test", []string{"bearer"}, func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		_, _ = fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
	})
	random := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random)
	want := fmt.Sprintf("%d %x <nil>", len(random), sha256.Sum256(random))
	for name, body := range map[string]io.Reader{"length": bytes.NewReader(random), "chunks": io.MultiReader(bytes.NewReader(random))} {
		if status, text, _ := l.do("PUT", "/", body, "Authorization: Bearer "+mark, "Expect: 100-continue"); status != 200 || text != want {
			t.Errorf("%s: %d %.80s", name, status, text)
		}
	}
	r, w := io.Pipe()
	go func() {
		for i := range mark {
			_, _ = w.Write([]byte(mark[i : i+1]))
		}
		_ = w.Close()
	}()
	if status, text, _ := l.do("PUT", "/", r); status != 403 {
		t.Errorf("in chunks of one byte: %d %s", status, text)
	}
	if l.has(mark) {
		t.Error("a placeholder has arrived")
	}
}

// A destination that is not who it should be gets nothing (BS-9).
func TestUnverifiedDestination(t *testing.T) { both(t, testUnverifiedDestination) }

func testUnverifiedDestination(t *testing.T, protocol string) {
	l := newLab(t, protocol, "evil.test", []string{"bearer"}, func(http.ResponseWriter, *http.Request) {})
	status, _, answer := l.do("GET", "/", nil, "Authorization: Bearer "+mark)
	if status != 502 || !strings.Contains(answer.Header.Get("Proxy-Status"), "upstream-tls-failed") {
		t.Errorf("%d", status)
	}
	if end := <-l.ends; end.Reason != flow.UpstreamTLSFailed {
		t.Error(end.Reason.Token())
	}
	if l.has("GET") || l.has(value) || len(l.uses) > 0 {
		t.Error("something was sent")
	}
}

// An answer that has the value is cut before it passes, in its head and across chunks (BS-11).
func TestReflectedAnswers(t *testing.T) { both(t, testReflectedAnswers) }

func testReflectedAnswers(t *testing.T, protocol string) {
	l := newLab(t, protocol, "api.test", []string{"bearer"}, func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch r.URL.Path {
		case "/head":
			w.Header().Set("X-Echo", token)
		case "/length":
			_, _ = io.WriteString(w, "token: "+token)
		default:
			for i := range token {
				_, _ = io.WriteString(w, token[i:i+1])
				w.(http.Flusher).Flush()
			}
		}
	})
	for _, path := range []string{"/head", "/length", "/chunks"} {
		_, text, answer := l.do("GET", path, nil, "Authorization: Bearer "+mark)
		if strings.Contains(text, value) || answer != nil && answer.Header.Get("X-Echo") != "" || !strings.Contains(text, "cut") && answer != nil {
			t.Errorf("%s: %q", path, text)
		}
		if end := <-l.ends; end.Reason != flow.SecretReflected {
			t.Errorf("%s: ends by %q", path, end.Reason.Token())
		}
	}
}

// Each piece of an answer passes when it comes, the last one too, and what begins like a
// value is not lost (B128).
func TestAnswersAreStreamed(t *testing.T) { both(t, testAnswersAreStreamed) }

func testAnswersAreStreamed(t *testing.T, protocol string) {
	more := make(chan bool)
	l := newLab(t, protocol, "api.test", []string{"bearer"}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short" {
			_, _ = io.WriteString(w, value[:5])
			return
		}
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-more
		}
	})
	answer, err := l.client.Get(l.url("/"))
	check(t, err)
	lines := bufio.NewReader(answer.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q %v", line, err)
		}
		_, _ = lines.ReadString('\n')
		more <- true
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
	if _, text, _ := l.do("GET", "/short", nil); text != value[:5] {
		t.Errorf("%q", text)
	}
	if status, text, _ := l.do("HEAD", "/short", nil); status != 200 || text != "" {
		t.Errorf("%d %q", status, text)
	}
}

// A connection that has left HTTP goes on both ways.
func TestUpgrade(t *testing.T) {
	l := newLab(t, http1, "api.test", []string{"bearer"}, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil || r.Header.Get("Authorization") != "Bearer "+value {
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello ")
		_ = rw.Flush()
		_, _ = io.Copy(c, rw)
	})
	config := l.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "api.test"
	c := tls.Client(l.agent(), config)
	defer c.Close()
	_, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: api.test:%d\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAuthorization: Bearer %s\r\n\r\nearly", l.port, mark)
	check(t, err)
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, nil)
	check(t, err)
	got := make([]byte, len("hello early"))
	if _, err := io.ReadFull(in, got); err != nil || answer.StatusCode != 101 || string(got) != "hello early" {
		t.Fatalf("%d %q %v", answer.StatusCode, got, err)
	}
	check(t, c.CloseWrite())
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
	if end := <-l.ends; end.Reason != flow.None {
		t.Error(end.Reason.Token())
	}
}

// The next request has the new value, on the same connection (BS-14). What ends the cell
// ends the flow.
func TestRefreshAndRevoke(t *testing.T) { both(t, testRefreshAndRevoke) }

func testRefreshAndRevoke(t *testing.T, protocol string) {
	l := newLab(t, protocol, "api.test", []string{"bearer"}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, len(r.Header.Get("Authorization")))
	})
	_, one, _ := l.do("GET", "/", nil, "Authorization: Bearer "+mark)
	l.secrets.Keeper.Set("gh", nil, time.Time{})
	if status, _, _ := l.do("GET", "/", nil, "Authorization: Bearer "+mark); status != 503 {
		t.Errorf("without a value: %d", status)
	}
	if one != fmt.Sprint(len("Bearer "+value)) {
		t.Error(one)
	}
	if protocol == http1 { // else the connection goes on
		if end := <-l.ends; end.Reason != flow.SecretUnavailable || end.Up == 0 || end.Down == 0 {
			t.Errorf("%+v", end)
		}
	}
	_, _, _ = l.do("GET", "/", nil)
	none := l.gate.Policy()
	none.Rules = nil
	check(t, l.gate.Install(none))
	if end := <-l.ends; end.Reason != flow.Revoked {
		t.Error(end.Reason.Token())
	}
	var s *Secrets
	if s.Bound(flow.Request{Transport: flow.TCP, Name: "api.test", Port: l.port}) || l.secrets.Bound(flow.Request{Transport: flow.UDP, Name: "api.test", Port: l.port}) {
		t.Error("a flow without a secret is read")
	}
}

// What two readers could take for answers of two lengths is none.
func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: a\r\n\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := readAnswer(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			return
		}
		again, err := readAnswer(bufio.NewReader(strings.NewReader(h.raw)))
		if err != nil || again != h {
			t.Errorf("%q is read as %+v, and that as %+v, %v", text, h, again, err)
		}
		lower := strings.ToLower(h.raw)
		if h.chunked && strings.Contains(lower, "\ncontent-length:") || !strings.HasSuffix(h.raw, "\r\n\r\n") || strings.Count(h.raw, "\r\n\r\n") != 1 {
			t.Errorf("%q goes on", h.raw)
		}
	})
}
