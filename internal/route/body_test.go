package route

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"skep.dev/skep/internal/flow"
)

// A body is its content, and what follows is left for the next request.
func TestBody(t *testing.T) {
	chunked := Head{Chunked: true}
	for _, c := range []struct {
		head Head
		raw  string
		want string
	}{
		{Head{}, "", ""}, {Head{Length: 3}, "abc", "abc"}, {chunked, "0\r\n\r\n", ""},
		{chunked, "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", "abc0123456789"},
	} {
		for _, source := range []io.Reader{strings.NewReader(c.raw + "next"), iotest.OneByteReader(strings.NewReader(c.raw + "next"))} {
			in := bufio.NewReader(source)
			got, err := io.ReadAll(Body(in, c.head))
			if err != nil || string(got) != c.want {
				t.Errorf("%q: %q, %v", c.raw, got, err)
			}
			if rest, _ := io.ReadAll(in); string(rest) != "next" {
				t.Errorf("%q: %q is left", c.raw, rest)
			}
		}
	}
}

func TestBrokenBody(t *testing.T) {
	var fault *HeadError
	for raw, broken := range map[string]bool{
		"x\r\n": true, "+1\r\na\r\n": true, "1\r\nab\r\n": true, "1\na\r\n": false, "0\r\nno field\r\n\r\n": true, "3\r\nab": false, "": false, "3\r\nabc\r\n": false,
	} {
		_, err := io.ReadAll(Body(bufio.NewReader(strings.NewReader(raw)), Head{Chunked: true}))
		if err == nil || broken != errors.As(err, &fault) {
			t.Errorf("%q: %v", raw, err)
		}
	}
	if _, err := io.ReadAll(Body(bufio.NewReader(strings.NewReader("ab")), Head{Length: 3})); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

// FuzzBody compares with net/http on what both read.
func FuzzBody(f *testing.F) {
	f.Add("3\r\nabc\r\n0\r\n\r\n")
	f.Add("A;x\r\n0123456789\r\n0\r\nT: x\r\n\r\n")
	f.Fuzz(func(t *testing.T, raw string) {
		ours, err := io.ReadAll(Body(bufio.NewReader(strings.NewReader(raw)), Head{Chunked: true}))
		if err != nil {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + raw)))
		if err != nil {
			t.Fatal(err)
		}
		if theirs, err := io.ReadAll(r.Body); err == nil && string(theirs) != string(ours) {
			t.Errorf("%q is read as %q here and as %q there", raw, ours, theirs)
		}
	})
}

func TestAnswer(t *testing.T) {
	a, err := http.ReadResponse(bufio.NewReader(strings.NewReader(Answer(flow.PathNotAllowed))), nil)
	if err != nil || a.StatusCode != 403 || a.Header.Get("Boundary-Reason") != flow.PathNotAllowed.Sentence() || len(a.Header["Proxy-Status"]) != 1 || !a.Close {
		t.Errorf("%+v %v", a, err)
	}
	if Answer(flow.HTTPRequired) != "" {
		t.Error("what is only recorded is answered")
	}
}
