package tunnel

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"skep.dev/skep/internal/flow"
)

func TestHandshakesOfIngress(t *testing.T) {
	http := func(target string) string { return connect(target) }
	for _, c := range []struct {
		in   string
		form Form
		want flow.Reason
	}{
		{http("127.0.0.1:8080"), Both, flow.None}, // BI-1
		{http("[::1]:8080"), OnlyHTTP, flow.None},
		{http("127.0.0.1:8081"), Both, flow.PortNotPermitted}, // BI-2
		{http("10.0.0.1:8080"), Both, flow.PortNotPermitted},
		{http("localhost:8080"), Both, flow.PortNotPermitted},
		{"CONNECT 127.0.0.1:8080 HTTP/1.1\r\n\r\n", Both, flow.MissingHost},
		{"GET / HTTP/1.1\r\n\r\n", Both, flow.MalformedRequestLine}, // BI-3
		{"CONNECT 8080\n", OnlyHTTP, flow.MalformedRequestLine},
		{http("127.0.0.1:8080"), OnlyText, flow.MalformedRequestLine},
		{"CONNECT 8080\n", Both, flow.None}, // BI-4
		{"CONNECT 8080\n", OnlyText, flow.None},
		{"CONNECT 8081\n", Both, flow.PortNotPermitted},
		{"CONNECT +8080\n", Both, flow.PortNotPermitted},
		{"CONNECT 8080\r\n", Both, flow.MalformedRequestLine},
		{"CONNECT  8080\n", Both, flow.MalformedRequestLine},
		{"\n", Both, flow.MalformedRequestLine},
		{strings.Repeat("C", 200), Both, flow.MalformedRequestLine},
	} {
		r := bufio.NewReader(strings.NewReader(c.in + "payload"))
		i, err := ReadIngress(r, 8080, c.form)
		got := flow.None
		var fault *HeadError
		if errors.As(err, &fault) {
			got = fault.Reason
		} else if err != nil {
			t.Errorf("%q: %v", c.in, err)
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
		if rest, _ := io.ReadAll(r); got == flow.None && string(rest) != "payload" { // B175
			t.Errorf("%q: after the handshake comes %q", c.in, rest)
		}
		if i.text != (strings.HasPrefix(c.in, "CONNECT 8") || strings.HasPrefix(c.in, "CONNECT +")) && c.form != OnlyHTTP && got != flow.MalformedRequestLine {
			t.Errorf("%q is answered in the other form", c.in)
		}
	}
}

func TestIngressBothEnds(t *testing.T) {
	for _, form := range []Form{OnlyHTTP, OnlyText} {
		var asked strings.Builder
		if err := AskIngress(&asked, 8080, form); err != nil {
			t.Fatal(err)
		}
		i, err := ReadIngress(bufio.NewReader(strings.NewReader(asked.String())), 8080, Both)
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(strings.NewReader(i.Accepted() + "payload"))
		if err := ReadIngressAnswer(r, form); err != nil {
			t.Error(err)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "payload" {
			t.Errorf("after the answer comes %q", rest)
		}
		for _, why := range []flow.Reason{flow.IngressUnreachable, flow.PortNotPermitted, flow.Busy} {
			var refused *RefusedError
			if err := ReadIngressAnswer(bufio.NewReader(strings.NewReader(i.Refused(why))), form); !errors.As(err, &refused) {
				t.Errorf("%s reads as %v", why, err)
			}
		}
	}
	for in, fails := range map[string]bool{"OK\n": false, "OK 12\n": false, "YES\n": true, "OK": true, strings.Repeat("O", 300): true} {
		if err := ReadIngressAnswer(bufio.NewReader(strings.NewReader(in)), OnlyText); (err != nil) != fails {
			t.Errorf("%.20q: %v", in, err)
		}
	}
}

func FuzzIngress(f *testing.F) {
	f.Add([]byte("CONNECT 8080\n"))
	f.Add([]byte(connect("127.0.0.1:8080")))
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, err := ReadIngress(bufio.NewReader(strings.NewReader(string(in))), 8080, Both); err == nil && !strings.Contains(string(in), "8080") {
			t.Fatalf("%q names another port", in)
		}
	})
}
