package route

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
)

// stripped is a request as it is sent on, with its body and its trailer.
func stripped(t testing.TB, in string) (string, bool) {
	r := bufio.NewReader(strings.NewReader(in))
	h, err := ReadHead(r, 80, true)
	if err != nil {
		return "", false
	}
	h = h.WithoutCredentials()
	var out bytes.Buffer
	out.Write(h.Raw)
	if _, err := CopyBody(&out, r, h); err != nil {
		return out.String(), false
	}
	return out.String(), true
}

// B171: however it is written, what a caller says about himself is not sent on; all else is,
// as it was.
func TestWithoutCredentials(t *testing.T) {
	for in, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nA: b\r\n\r\n":                                                                        "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n",
		"GET / HTTP/1.1\r\nCOOKIE: x\r\nHost: a\r\ncookie:x\r\nProxy-authorization:\t x\r\n\r\n":                                               "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nx-skep-agent: x\r\nX-SKEP-ANYTHING: x\r\nX-Skept: b\r\n\r\n":                                             "GET / HTTP/1.1\r\nHost: a\r\nX-Skept: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c, x\r\nConnection: Upgrade\r\nCookie: x\r\n\r\n":                                             "GET / HTTP/1.1\r\nHost: a\r\nConnection: \r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nCookie: x\r\nSum: 1\r\nAuthorization: x\r\n\r\n": "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nSum: 1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nCookie: x!":                                                                   "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nCookie: x!",
	} {
		if got, ok := stripped(t, in); !ok || got != want {
			t.Errorf("%q becomes %q, %v; want %q", in, got, ok, want)
		}
	}
	for _, in := range []string{ // which one server might read in another way
		"GET / HTTP/1.1\r\nHost: a\r\nAuthorization : x\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n Cookie: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nA: b\nCookie: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nA: b\rCookie: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nCookie : x\r\n\r\n",
	} {
		if got, ok := stripped(t, in); ok {
			t.Errorf("%q is sent on as %q", in, got)
		}
	}
}

func FuzzWithoutCredentials(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nX-Skep-A: b\r\n\r\n")
	f.Add("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nCookie: x\r\n\r\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, ok := stripped(t, in)
		if !ok {
			return
		}
		head, _, _ := strings.Cut(got, "\r\n\r\n")
		for _, line := range strings.FieldsFunc(head, func(c rune) bool { return c == '\r' || c == '\n' })[1:] {
			key, _, _ := strings.Cut(strings.ToLower(line), ":")
			switch key = strings.Trim(key, " \t"); {
			case key == "authorization", key == "proxy-authorization", key == "cookie", strings.HasPrefix(key, "x-skep-"):
				t.Fatalf("%q is sent on as %q", in, got)
			}
		}
		if again, ok := stripped(t, got); !ok || again != got {
			t.Fatalf("%q becomes %q, and that %q", in, got, again)
		}
	})
}
