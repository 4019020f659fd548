package tunnel

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"skep.dev/skep/internal/flow"
)

func TestAnswersOfOurs(t *testing.T) {
	for _, transport := range []flow.Transport{flow.TCP, flow.UDP} {
		r := bufio.NewReader(strings.NewReader(Accepted(transport) + "rest"))
		if err := ReadAnswer(r, transport); err != nil {
			t.Error(err)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "rest" {
			t.Errorf("after the answer comes %q", rest)
		}
	}
}

// TestRefusalsHaveOneShape: BC-32, B39, B60.
func TestRefusalsHaveOneShape(t *testing.T) {
	for token := range strings.FieldsSeq("malformed-target connect-only not-on-allowlist busy dial-failed udp-disabled head-timeout") {
		why, err := flow.ParseReason(token)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.ReadResponse(bufio.NewReader(strings.NewReader(Refused(why, ""))), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(a.Body)
		if a.StatusCode != why.Status() || len(body) != 0 || a.ContentLength != 0 || !a.Close || len(a.Header["Proxy-Status"]) != 1 ||
			len(a.Header["Boundary-Reason"]) != 1 || a.Header.Get("Boundary-Reason") != why.Sentence() {
			t.Errorf("%s: %v %v %q", why, a.Status, a.Header, body)
		}
		if (a.Header.Get("Allow") != "") != (a.StatusCode == 405) || (a.Header.Get("Retry-After") != "") != (a.StatusCode == 503) {
			t.Errorf("%s: %v", why, a.Header)
		}
		var refused *RefusedError
		err = ReadAnswer(bufio.NewReader(strings.NewReader(Refused(why, ""))), flow.TCP)
		if !errors.As(err, &refused) || refused.Reason != token || refused.Status != why.Status() {
			t.Errorf("%s reads as %v", why, err)
		}
	}
}

// TestAnswersOfOthers: BG-9, B38.
func TestAnswersOfOthers(t *testing.T) {
	interim := "HTTP/1.1 100 Continue\r\n\r\n"
	for in, want := range map[string]int{ // 0 is success, -1 no answer
		"HTTP/1.1 202 Accepted\r\nX: y\r\n\r\n":                          0,
		"HTTP/1.0 200\r\n\r\n":                                           0,
		interim + "HTTP/1.1 200 OK\r\n\r\n":                              0,
		strings.Repeat(interim, 8) + "HTTP/1.1 200 OK\r\n\r\n":           0,
		strings.Repeat(interim, 9) + "HTTP/1.1 200 OK\r\n\r\n":           -1,
		"HTTP/1.1 403 Forbidden\r\nProxy-Status: x; reason=evil\r\n\r\n": 403,
		"HTTP/1.1 101 Switching Protocols\r\n\r\n":                       101,
		"HTTP/1.1 301 Moved\r\n\r\n":                                     301,
		"HTTP/2.0 200 OK\r\n\r\n":                                        -1,
		"HTTP/1.1 2000 OK\r\n\r\n":                                       -1,
		"HTTP/1.1 099 OK\r\n\r\n":                                        -1,
		"HTTP/1.1 200 OK\nX: y\r\n\r\n":                                  -1,
		"HTTP/1.1 200 OK\r\nbad\r\n\r\n":                                 -1,
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", MaxHead) + "\r\n": -1,
		"SSH-2.0-x\r\n":                                                  -1,
		"":                                                               -1,
	} {
		err := ReadAnswer(bufio.NewReader(strings.NewReader(in)), flow.TCP)
		got := 0
		var refused *RefusedError
		switch {
		case errors.As(err, &refused):
			got = refused.Status
			if refused.Reason != "" {
				t.Errorf("%.60q: reason %q is not of the set", in, refused.Reason)
			}
		case err != nil:
			got = -1
		}
		if got != want {
			t.Errorf("%.60q: %v, want %d", in, err, want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(Accepted(flow.TCP)))
	f.Add([]byte(Refused(flow.Busy, "")))
	f.Fuzz(func(t *testing.T, in []byte) {
		err := ReadAnswer(bufio.NewReader(strings.NewReader(string(in))), flow.TCP)
		if err == nil && !strings.Contains(string(in), " 2") {
			t.Fatalf("%q reads as a success", in)
		}
	})
}
