package boundary

import (
	"strings"
	"testing"

	"skep.dev/skep/internal/testlab"
)

// TestBX10ServerNameInACell: TLS to a listed name passes with that server name only;
// of another, or of none, not one byte goes upstream.
func TestBX10ServerNameInACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ok.test", "93.184.216.34")
		lab.Host("other.test", "93.184.216.34")
		lab.HTTPS("93.184.216.34:443", nil)
		h := open(t, lab, "net: [{name: ok.test}, {name: other.test}]\n")
		r := h.try(attempt{How: "tls", At: "ok.test:443", Say: "ok.test"}, attempt{How: "tls", At: "ok.test:443", Say: "other.test"}, attempt{How: "tls", At: "ok.test:443"})
		if r[0].Got != "a handshake" {
			t.Errorf("%+v", r[0])
		}
		for _, r := range r[1:] {
			if !strings.Contains(r.Err, "access denied") {
				t.Errorf("%+v, want the alert access_denied", r)
			}
		}
		for i, c := range lab.Reached("93.184.216.34:443") {
			if (c.Received > 0) != (i == 0) {
				t.Errorf("connection %d: %d bytes went upstream", i, c.Received)
			}
		}
		record := h.record()
		h.refused(record, "ok.test:443", "tls-name-mismatch")
		h.refused(record, "ok.test:443", "tls-name-missing")
	})
}

// TestBX14InACell: no key for a hidden name comes by DNS; a hello that hides one is judged by
// the name that it shows, and where its rule refuses it, not one byte of it goes upstream.
func TestBX14InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ok.test", public4)
		lab.Host("plain.test", public4)
		lab.HTTPS(public4+":443", nil)
		h := open(t, lab, "net: [{name: ok.test}, {name: plain.test, ech: refuse}]\n")
		r := h.try(attempt{How: "ech", At: "ok.test:443", Say: "ok.test"}, attempt{How: "tls", At: "plain.test:443", Say: "plain.test"}, attempt{How: "ech", At: "plain.test:443", Say: "plain.test"},
			attempt{How: "ech", At: "ok.test:443", Say: "other.test"})
		if r[0].Got != "a handshake" || r[1].Got != "a handshake" || !strings.Contains(r[2].Err, "access denied") || !strings.Contains(r[3].Err, "access denied") {
			t.Errorf("%+v", r)
		}
		for i, c := range lab.Reached(public4 + ":443") {
			if (c.Received > 0) != (i < 2) {
				t.Errorf("connection %d: %d bytes went upstream", i, c.Received)
			}
		}
		record := h.record()
		h.refused(record, "plain.test:443", "ech-refused")
		h.refused(record, "ok.test:443", "tls-name-mismatch")
	})
}

// TestBC44RequestsInACell: of plain HTTP a rule admits methods and paths, on every
// request, and what was refused is explained without what the agent sent.
func TestBC44RequestsInACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ok.test", "93.184.216.34")
		lab.HTTP("93.184.216.34:80", nil)
		h := open(t, lab, "net: [{name: ok.test, ports: [80], methods: [GET], paths: [\"/repos/*\"]}]\n")
		r := h.try(attempt{How: "http", At: "ok.test:80", Say: "GET|ok.test|/repos/a DELETE|ok.test|/repos/a"},
			attempt{How: "http", At: "ok.test:80", Say: "GET|ok.test|/repos/a GET|ok.test|/private"},
			attempt{How: "http", At: "ok.test:80", Say: "GET|ok.test|/repos/a GET|ok.test|/repos/%2e%2e/private"})
		for i, want := range []string{
			"200 403:skep; error=http_request_denied; reason=method-not-allowed:method not allowed",
			"200 403:skep; error=http_request_denied; reason=path-not-allowed:not allowed by policy",
			"200 400:skep; error=http_request_error; reason=path-ambiguous:path has dot segments, an encoded slash or a control byte",
		} {
			if r[i].Got != want {
				t.Errorf("%+v, want %q", r[i], want)
			}
		}
		for _, q := range lab.Requests() {
			if q.Method != "GET" || !strings.HasPrefix(q.Path, "/repos/") || strings.Contains(q.Path, "private") {
				t.Errorf("%s %s went upstream", q.Method, q.Path)
			}
		}
		record := h.record()
		for _, why := range []string{"method-not-allowed", "path-not-allowed", "path-ambiguous"} {
			h.refused(record, "ok.test:80", why)
		}
	})
}

// TestBX13HostInACell: on port 80 each request names the host that was authorised, and
// what is not HTTP is closed.
func TestBX13HostInACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("ok.test", "93.184.216.34")
		lab.HTTP("93.184.216.34:80", nil)
		h := open(t, lab, "net: [{name: ok.test, ports: [80]}]\n")
		r := h.try(attempt{How: "http", At: "ok.test:80", Say: "ok.test other.test"}, attempt{How: "tcp", At: "ok.test:80", Say: "SSH-2.0-x\r\n"})
		const want = "200 421:skep; error=http_request_denied; reason=http-host-mismatch:Host differs from the name that was authorised"
		if r[0].Got != want {
			t.Errorf("%+v, want %q", r[0], want)
		}
		if r[1].Got != "" || r[1].Err == "" {
			t.Errorf("what is not HTTP: %+v", r[1])
		}
		for _, q := range lab.Requests() {
			if q.Host != "ok.test" {
				t.Errorf("a request for %s went upstream", q.Host)
			}
		}
		for _, c := range lab.Reached("93.184.216.34:80") {
			if strings.Contains(string(c.First), "SSH") {
				t.Errorf("what is not HTTP went upstream: %q", c.First)
			}
		}
		record := h.record()
		h.refused(record, "ok.test:80", "http-host-mismatch")
		h.refused(record, "ok.test:80", "http-required")
	})
}
