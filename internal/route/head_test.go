package route

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"skep.dev/skep/internal/flow"
)

func read(s string, port uint16, may bool) (Head, flow.Reason, *bufio.Reader) {
	r := bufio.NewReader(strings.NewReader(s))
	h, err := ReadHead(r, port, may)
	var fault *HeadError
	if errors.As(err, &fault) {
		return h, fault.Reason, r
	}
	if err != nil {
		return h, flow.HeadTimeout, r // stands for: more bytes wanted
	}
	return h, flow.None, r
}

func TestHeads(t *testing.T) {
	for _, c := range []struct {
		head string
		name string
		why  flow.Reason
	}{
		{"GET /a?b HTTP/1.1\r\nHost: OK.test\r\n\r\n", "ok.test", flow.None},
		{"GET / HTTP/1.0\r\nHost: ok.test:80\r\n\r\n", "ok.test", flow.None},
		{"GET http://ok.test/x HTTP/1.1\r\nHost: ok.test\r\n\r\n", "ok.test", flow.None},
		{"GET http://evil.test/x HTTP/1.1\r\nHost: ok.test\r\n\r\n", "", flow.AuthorityMismatch},
		{"GET / HTTP/1.1\r\nHost: ok.test:81\r\n\r\n", NotAName, flow.None},
		{"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "127.0.0.1", flow.None},
		{"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "::1", flow.None},
		{"GET / HTTP/1.1\r\nHost: 127.1\r\n\r\n", NotAName, flow.None},
		{"GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", NotAName, flow.None},
		{"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", NotAName, flow.None},
		{"GET / HTTP/1.1\r\nHost: [127.0.0.1]\r\n\r\n", NotAName, flow.None},
		{"GET / HTTP/1.1\r\nHost: [ok.test]\r\n\r\n", NotAName, flow.None},
		{"GET / HTTP/1.1\r\n\r\n", "", flow.MissingHost},
		{"GET / HTTP/1.1\r\nHost: ok.test\r\nHost: ok.test\r\n\r\n", "", flow.DuplicateHost},
		{"GET / HTTP/1.1\r\nHost : ok.test\r\n\r\n", "", flow.MalformedHeader},
		{"GET / HTTP/1.1\r\nHost: ok.test\r\n folded\r\n\r\n", "", flow.MalformedHeader},
		{"GET / HTTP/1.1\nHost: ok.test\n\n", "", flow.HTTPRequired},
		{"GET / HTTP/1.1\r\nHost: ok.test\nX: y\r\n\r\n", "", flow.MalformedHeader},
		{"GET / HTTP/1.1\r\nHost: ok.test\r\nX: a\rb\r\n\r\n", "", flow.MalformedHeader},
		{"POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "", flow.MalformedHeader},
		{"POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", "", flow.MalformedHeader},
		{"POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: +1\r\n\r\n", "", flow.MalformedHeader},
		{"POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: xchunked\r\n\r\n", "", flow.MalformedHeader},
		{"POST / HTTP/1.0\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n", "", flow.MalformedHeader},
		{"CONNECT ok.test:80 HTTP/1.1\r\nHost: ok.test\r\n\r\n", "", flow.MethodNotAllowed},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", flow.HTTPRequired},
		{"\x16\x03\x01", "", flow.HTTPRequired}, {"SSH-2.0-x\r\n", "", flow.HTTPRequired}, {"GET  / HTTP/1.1\r\n\r\n", "", flow.HTTPRequired}, {"\r\n", "", flow.HTTPRequired},
		{"GET / HTTP/1.1\r\nX: " + strings.Repeat("a", MaxInnerHead) + "\r\n\r\n", "", flow.HeadTooLarge},
	} {
		h, why, _ := read(c.head, 80, true)
		if why != c.why || why == flow.None && (h.Inner.Name != c.name || string(h.Raw) != c.head) {
			t.Errorf("%.60q: %q %s, want %q %s", c.head, h.Inner.Name, why, c.name, c.why)
		}
	}
}

// Requests that follow a body are found exactly, so that a second Host cannot hide.
func TestBodiesEndWhereTheyEnd(t *testing.T) {
	next := "GET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n"
	for _, body := range []string{
		"Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "\r\n",
	} {
		all := "POST / HTTP/1.1\r\nHost: ok.test\r\n" + body
		r := bufio.NewReader(strings.NewReader(all + next))
		h, err := ReadHead(r, 80, true)
		if err != nil {
			t.Fatal(err)
		}
		var sent bytes.Buffer
		sent.Write(h.Raw)
		if _, err := CopyBody(&sent, r, h); err != nil || sent.String() != all {
			t.Errorf("%q: %v, sent %q", body, err, sent.String())
		}
		if h, err = ReadHead(r, 80, false); err != nil || h.Inner.Name != "evil.test" {
			t.Errorf("after %q: %+v %v", body, h.Inner, err)
		}
	}
	for _, bad := range []string{"3\r\nabcd\r\n0\r\n\r\n", "x\r\n", "-1\r\n", "\r\n", "3\nabc\r\n", "0\r\nbad trailer\r\n\r\n", "FFFFFFFFFFFFFFFFF\r\n"} {
		r := bufio.NewReader(strings.NewReader(bad))
		if _, err := CopyBody(io.Discard, r, Head{Chunked: true}); err == nil {
			t.Errorf("%q must be refused", bad)
		}
	}
}

func TestUpgrades(t *testing.T) {
	ws := "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
	if h, why, _ := read(ws, 80, true); why != flow.None || !h.Upgrade || string(h.Raw) != ws {
		t.Errorf("%+v %s", h, why)
	}
	if h, _, _ := read(ws, 80, false); h.Upgrade || strings.Contains(strings.ToLower(string(h.Raw)), "upgrade") || !strings.Contains(string(h.Raw), "keep-alive") {
		t.Errorf("%q", h.Raw)
	}
	h2c := "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n"
	if h, _, _ := read(h2c, 80, true); h.Upgrade || strings.Contains(strings.ToLower(string(h.Raw)), "h2c") || strings.Contains(string(h.Raw), "HTTP2-Settings") {
		t.Errorf("%q", h.Raw)
	}
}

func FuzzHead(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: ok.test\r\n\r\nrest")
	f.Add("POST http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		h, why, r := read(s, 80, true)
		if why != flow.None {
			return
		}
		var out bytes.Buffer
		_, _ = CopyBody(&out, r, h)
		if strings.Contains(string(h.Raw), "h2c") && strings.Contains(strings.ToLower(string(h.Raw)), "\nupgrade: h2c") {
			t.Fatalf("h2c survived: %q", h.Raw)
		}
		if !strings.HasPrefix(s, string(h.Raw)+out.String()) && h.Upgrade {
			t.Fatalf("what is sent on is not what came: %q", s)
		}
	})
}

func TestHeadWith(t *testing.T) {
	h := Head{Raw: []byte("GET / HTTP/1.1\r\nHost: a\r\nx-skep-flow: forged\r\nX-Skep-Flow:\r\nX-Skep-Flows: 1\r\n\r\n")}
	if got, want := string(h.With("X-Skep-Flow", "id")), "GET / HTTP/1.1\r\nX-Skep-Flow: id\r\nHost: a\r\nX-Skep-Flows: 1\r\n\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
