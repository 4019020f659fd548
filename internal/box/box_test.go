package box

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/name"
)

// BG-1, BG-3: connects by name and by literal arrive as such, in both families.
func TestBG1BG3NamesAndLiterals(t *testing.T) {
	port4, port6 := echoAt(t, public4+":0"), echoAt(t, "["+public6+"]:0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Version: "v1", Rules: []*skepv1.BoxRule{
		nameRule("ok.test", public4, port4), nameRule("six.test", public6, port6),
		{Id: "lit4", Ip: public4, Tcp: true, Ports: []*skepv1.BoxPorts{{First: uint32(port4), Last: uint32(port4)}}},
		{Id: "lit6", Cidr: "2606:2800::/32", Tcp: true, Ports: []*skepv1.BoxPorts{{First: uint32(port6), Last: uint32(port6)}}},
	}}}, nil)
	for _, v6 := range []bool{false, true} {
		addr := l.resolve("ok.test", v6)
		if !name.InPools(addr) {
			t.Fatalf("ok.test is %s", addr)
		}
		c, err := l.dial(netip.AddrPortFrom(addr, port4).String())
		if err != nil {
			t.Fatal(err)
		}
		says(t, c, "hello")
		c.Close()
	}
	r := l.daemon.find(t, "of the end of ok.test", func(r *skepv1.FlowRecord) bool { return r.Kind == skepv1.FlowRecord_KIND_OUTCOME })
	want := fmt.Sprintf("ok.test:%d", port4)
	if r.Destination != want || r.Address != fmt.Sprintf("%s:%d", public4, port4) || r.BytesUp != 5 || r.BytesDown != 5 || r.Rule != "ok.test" || r.Line != 4 || r.Policy != "v1" || r.Agent != "agent.example" || r.Generation != 3 || r.Decision != "allow" {
		t.Errorf("%v", r)
	}
	for _, dst := range []string{fmt.Sprintf("%s:%d", public4, port4), fmt.Sprintf("[%s]:%d", public6, port6), netip.AddrPortFrom(l.resolve("six.test", true), port6).String()} {
		c, err := l.dial(dst)
		if err != nil {
			t.Fatalf("%s: %v", dst, err)
		}
		says(t, c, "literal")
		c.Close()
	}
	l.daemon.find(t, "of the literal", func(r *skepv1.FlowRecord) bool {
		return r.Destination == fmt.Sprintf("[%s]:%d", public6, port6) && r.Rule == "lit6"
	})
	l.finish()
}

// BG-2, BG-4, BG-10: refused at once, nothing leaves, recorded with its reason.
func TestBG2BG4BG10Refusals(t *testing.T) {
	port := echoAt(t, public4+":0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Version: "v", Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, port)}}}, nil)
	ok := l.resolve("ok.test", false)
	denied := l.resolve("denied.test", false)
	denied6 := l.resolve("denied.test", true)
	for dst, want := range map[string]struct{ destination, reason string }{
		fmt.Sprintf("%s:%d", denied, port):    {fmt.Sprintf("denied.test:%d", port), "not-on-allowlist"},
		fmt.Sprintf("[%s]:443", denied6):      {"denied.test:443", "not-on-allowlist"},
		fmt.Sprintf("%s:%d", ok, port+1):      {fmt.Sprintf("ok.test:%d", port+1), "port-not-allowed"},
		fmt.Sprintf("%s:%d", public4, port):   {fmt.Sprintf("%s:%d", public4, port), "ip-not-on-allowlist"},
		fmt.Sprintf("[%s]:%d", public6, port): {fmt.Sprintf("[%s]:%d", public6, port), "ip-not-on-allowlist"},
		"100.99.1.2:443":                      {"100.99.1.2:443", "ip-not-on-allowlist"},
		"169.254.169.254:80":                  {"169.254.169.254:80", "ip-not-on-allowlist"},
	} {
		begin := time.Now()
		_, err := l.dial(dst)
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(begin) > 50*time.Millisecond {
			t.Errorf("%s: %v after %s", dst, err, time.Since(begin))
		}
		_ = want
	}
	l.finish()
	found := map[string]string{}
	for _, r := range l.daemon.all() {
		if r.Kind != skepv1.FlowRecord_KIND_DENIED || r.Count != 1 || r.Decision != "block" {
			t.Errorf("%v", r)
		}
		found[r.Destination] = r.Reason + " " + r.AllowWith
	}
	for destination, want := range map[string]string{
		fmt.Sprintf("denied.test:%d", port): fmt.Sprintf("not-on-allowlist - {name: denied.test, ports: [%d]}", port),
		"denied.test:443":                   "not-on-allowlist - {name: denied.test}",
		fmt.Sprintf("ok.test:%d", port+1):   fmt.Sprintf("port-not-allowed - {name: ok.test, ports: [%d]}", port+1),
		fmt.Sprintf("%s:%d", public4, port): fmt.Sprintf("ip-not-on-allowlist - {ip: %q, ports: [%d]}", public4, port),
		"100.99.1.2:443":                    "ip-not-on-allowlist ",
		"169.254.169.254:80":                "ip-not-on-allowlist open: [{cidr: \"169.254.169.254/32\", ports: [80]}] in the operator's ceiling.yaml, beside the profile's rule: a profile alone never reaches an address of the host itself",
	} {
		if found[destination] != want {
			t.Errorf("%s: %q, want %q", destination, found[destination], want)
		}
	}
}

// BG-11: DNS is answered here, whatever address it goes to; nothing forwards it.
func TestBG11DNS(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{}}, nil)
	a := lookup(t, l.exchange("udp", "8.8.8.8:53", "x.test", false))
	b := lookup(t, l.exchange("tcp", netip.AddrPortFrom(name.Resolver4(), 53).String(), "x.test", false))
	c := lookup(t, l.exchange("udp", netip.AddrPortFrom(name.Resolver6(), 53).String(), "x.test", false))
	if !a.IsValid() || a != b || a != c {
		t.Errorf("%s %s %s", a, b, c)
	}
	if _, err := l.dial("8.8.8.8:53"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("TCP/53 elsewhere: %v", err)
	}
	l.silent.Store(true)
	if a := lookup(t, l.exchange("udp", "8.8.8.8:53", "y.test", false)); !a.IsValid() {
		t.Error("a denied name needs no kernel")
	}
	l.silent.Store(false)
	l.finish()
}

// B14: without the kernel's acknowledgement there is no answer.
func TestUnacknowledgedNameIsServfail(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, 443)}}}, nil)
	l.silent.Store(true)
	if a := l.resolveOnce("ok.test", false); a.IsValid() {
		t.Errorf("answered %s", a)
	}
	l.silent.Store(false)
	if a := l.resolve("ok.test", false); !a.IsValid() {
		t.Error("the next query tries again")
	}
	l.finish()
}

// BG-12: the recorded counts of a burst add up to the kernel's own.
func TestBG12Burst(t *testing.T) {
	const n = 10000
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{}}, nil)
	l.do(func() {
		for i := range n {
			if c, err := net.Dial("tcp", fmt.Sprintf("1.2.3.4:%d", 1000+i%3)); err == nil {
				c.Close()
				t.Error("connected")
			}
		}
	})
	if got := l.refused(); got != n {
		t.Errorf("the kernel counted %d", got)
	}
	l.finish()
	var sum uint64
	for _, r := range l.daemon.all() {
		sum += r.Count
	}
	if sum != n || len(l.daemon.all()) > 8 {
		t.Errorf("%d refusals in %d records", sum, len(l.daemon.all()))
	}
}

// BG-12, at a cell's own end: the warden goes first, and what it said last counts.
func TestBG12WardenGone(t *testing.T) {
	const n = 10000
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{}}, nil)
	l.do(func() {
		for range n {
			if c, err := net.Dial("tcp", "1.2.3.4:1000"); err == nil {
				c.Close()
				t.Error("connected")
			}
		}
	})
	l.leave()
	if err := <-l.result; !errors.Is(err, ErrWardenGone) {
		t.Errorf("the box ended with %v", err)
	}
	var sum uint64
	for _, r := range l.daemon.all() {
		sum += r.Count
	}
	if sum != n {
		t.Errorf("%d refusals are recorded, there were %d", sum, n)
	}
}

// BG-13: a connect to the listener itself is reset and recorded.
func TestBG13Listener(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{}}, nil)
	for _, at := range []string{"127.0.0.1:65001", "[::1]:65001"} {
		c, err := l.dial(at)
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", at, err)
		}
	}
	l.finish()
	n := 0
	for _, r := range l.daemon.all() {
		if r.Reason == "no-original-destination" && r.Destination == "*" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%v", l.daemon.all())
	}
}

// BG-15: when the box is gone, new connects are reset and old flows end.
func TestBG15BoxGone(t *testing.T) {
	port := echoAt(t, public4+":0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, port)}}}, nil)
	dst := netip.AddrPortFrom(l.resolve("ok.test", false), port).String()
	c, err := l.dial(dst)
	if err != nil {
		t.Fatal(err)
	}
	says(t, c, "x")
	l.kill()
	<-l.result
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the old flow ended as %v", err)
	}
	if c, err := l.dial(dst); err == nil {
		if _, err = c.Read(make([]byte, 1)); err == nil {
			t.Error("a new flow works without a box")
		}
	}
}

// BG-16: the cell's own loopback works, the host's is out of reach.
func TestBG16Loopback(t *testing.T) {
	port := echoAt(t, "127.0.0.1:0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{
		nameRule("lo.test", "127.0.0.1", port), {Id: "lo", Ip: "127.0.0.1", Tcp: true, Ports: []*skepv1.BoxPorts{{First: uint32(port), Last: uint32(port)}}},
	}}}, nil)
	if _, err := l.dial(fmt.Sprintf("127.0.0.1:%d", port)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the host's loopback: %v", err)
	}
	// A listed name that resolves to it: the floor holds, whatever the profile lists.
	c, err := l.dial(netip.AddrPortFrom(l.resolve("lo.test", false), port).String())
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
	l.daemon.find(t, "of the floor", func(r *skepv1.FlowRecord) bool { return r.Reason == "resolved-address-denied" })
	l.do(func() {
		ln, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			t.Error(err)
			return
		}
		defer ln.Close()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Errorf("the cell's own server: %v", err)
			return
		}
		c.Close()
	})
	l.finish()
}

// BC-37 natively: what cannot be recorded does not open.
func TestNoRecordNoFlow(t *testing.T) {
	port := echoAt(t, public4+":0")
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Rules: []*skepv1.BoxRule{nameRule("ok.test", public4, port)}}}, nil)
	dst := netip.AddrPortFrom(l.resolve("ok.test", false), port).String()
	l.daemon.mu.Lock()
	l.daemon.broken = true
	l.daemon.mu.Unlock()
	c, err := l.dial(dst)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
	l.daemon.mu.Lock()
	l.daemon.broken = false
	l.daemon.mu.Unlock()
	l.finish()
	if r := l.daemon.all(); len(r) != 1 || r[0].Reason != "record-unavailable" {
		t.Errorf("%v", r)
	}
}

// B70 row 1, through the kernel and the box to the gateway.
func TestModelGateway(t *testing.T) {
	l := start(t, &skepv1.Assignment{Policy: &skepv1.BoxPolicy{Model: true}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s for %s", r.URL.Path, r.Header.Get("X-Skep-Agent"))
	}))
	c, err := l.dial(netip.AddrPortFrom(l.resolve(name.Model, false), 80).String())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: mesh.skep.alt\r\n\r\n")
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(a.Body); string(body) != "/v1/models for agent.example" {
		t.Errorf("%q", body)
	}
	c.Close()
	if _, err := l.dial(netip.AddrPortFrom(l.resolve("a.mcp.skep.alt", false), 80).String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("row 3 answers as row 4: %v", err)
	}
	l.finish()
}

// B88: an assignment that is not understood does not become a cell.
func TestBadAssignmentIsNotReady(t *testing.T) {
	for what, p := range map[string]*skepv1.BoxPolicy{
		"no policy": nil, "unknown inner": {Rules: []*skepv1.BoxRule{{Name: "a.test", Inner: "maybe"}}}, "no destination": {Rules: []*skepv1.BoxRule{{Id: "x"}}},
		"pool": {Rules: []*skepv1.BoxRule{{Ip: "100.64.0.1"}}}, "bad cidr": {Rules: []*skepv1.BoxRule{{Cidr: "x"}}}, "bad port": {Rules: []*skepv1.BoxRule{nameRule("a.test", "", 0)}},
	} {
		e, err := eventOf(wired(t, &skepv1.WatchResponse{Event: &skepv1.WatchResponse_Assignment{Assignment: &skepv1.Assignment{Cell: "c", Policy: p}}}))
		switch {
		case err != nil:
		case e.assignment.policy == nil:
			err = errNoPolicy
		default:
			err = e.assignment.policy.Check()
		}
		if err == nil {
			t.Errorf("%s: must be refused", what)
		}
	}
}
