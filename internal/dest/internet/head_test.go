package internet

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// B112 by address: HTTP is demanded where the rule says so, and Host is the address.
func TestHTTPByAddress(t *testing.T) {
	s := &sink{}
	port, _ := serve(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		s.serve(c)
	})
	l := newLab(t, policy.Rule{ID: "ip", IP: netip.MustParseAddr("127.0.0.1"), Ports: one(t, port), TCP: true, HTTP: true})
	for host, want := range map[string]int{"127.0.0.1": 200, "127.0.0.2": 421, "evil.test": 421, "[127.0.0.1]": 421} {
		c := l.connect("127.0.0.1", port)
		fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, host, port)
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || a.StatusCode != want {
			t.Fatalf("%s: %v, %v, want %d", host, a, err, want)
		}
		_ = c.Close()
		if r := l.last(); want != 200 && (r.Verdict.Reason != flow.HTTPHostMismatch || strings.Contains(s.text(), "/"+host)) {
			t.Errorf("%s: %+v", host, r)
		}
	}
	c := l.connect("127.0.0.1", port)
	_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
	_, _ = io.ReadAll(c)
	if r := l.last(); r.Verdict.Reason != flow.HTTPRequired || strings.Contains(s.text(), "SSH") {
		t.Errorf("%+v", r)
	}
}

// B150: a head that is not whole in time is closed without an answer.
func TestLateHeadIsClosed(t *testing.T) {
	t.Parallel()
	port, _ := serve(t, echo)
	rule := local(t, "ok.test", port)
	rule.HTTP = true
	l := newLab(t, rule)
	c := l.connect("ok.test", port)
	began := time.Now()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: ok.test\r\n")
	got, _ := io.ReadAll(c)
	if r := l.last(); r.Verdict.Reason != flow.HeadTimeout || len(got) > 0 || time.Since(began) < boundary.FirstBytesTime {
		t.Errorf("after %s: %+v, answer %q", time.Since(began), r, got)
	}
}
