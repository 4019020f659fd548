package tunnel

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
)

// read parses one head and says what follows it.
func read(t *testing.T, in string, udp bool) (Target, flow.Reason, string) {
	t.Helper()
	r := bufio.NewReader(strings.NewReader(in))
	target, err := ReadHead(r, udp)
	rest, _ := io.ReadAll(r)
	var fault *HeadError
	if errors.As(err, &fault) {
		return target, fault.Reason, string(rest)
	}
	if err != nil {
		t.Fatalf("%q: %v", in, err)
	}
	return target, flow.None, string(rest)
}

// connect is a CONNECT head with an equal Host.
func connect(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

func TestHeadsOfConnect(t *testing.T) {
	many := strings.Repeat("X: y\r\n", MaxFields)
	for in, want := range map[string]flow.Reason{
		connect("127.0.0.1:80"):                                                         flow.None, // BC-1
		"CONNECT 127.0.0.1:80 HTTP/1.0\r\n\r\n":                                         flow.None, // BC-2
		"CONNECT a.test:80 HTTP/1.0\r\nHost: a.test:80\r\n\r\n":                         flow.None,
		"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\nContent-Length: 3\r\n\r\n":    flow.None, // BC-3
		"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\nTransfer-Encoding: x\r\n\r\n": flow.None,
		"CONNECT a.test:80 HTTP/1.1\r\n\r\n":                                            flow.MissingHost,   // BC-4
		"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\nHost: a.test:80\r\n\r\n":      flow.DuplicateHost, // BC-5
		"CONNECT a.test:80 HTTP/1.0\r\nHost: a.test:80\r\nHost: a.test:80\r\n\r\n":      flow.DuplicateHost,
		"CONNECT a.test:80 HTTP/1.1\r\nHost: b.test:80\r\n\r\n":                         flow.AuthorityMismatch, // BC-6
		"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:81\r\n\r\n":                         flow.AuthorityMismatch,
		"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:\r\n\r\n":                           flow.AuthorityMismatch,
		"CONNECT a.test:80 HTTP/1.1\r\nHost: \r\n\r\n":                                  flow.AuthorityMismatch,
		"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: [::ffff:127.0.0.1]:80\r\n\r\n":          flow.AuthorityMismatch,
		"CONNECT [::1]:80 HTTP/1.1\r\nHost: ::1:80\r\n\r\n":                             flow.AuthorityMismatch,
		"CONNECT OK.TEST.:80 HTTP/1.1\r\nHost: ok.test\r\n\r\n":                         flow.None, // BC-22
		connect("a.test:0"):         flow.MalformedPort, // BC-7
		connect("a.test:65536"):     flow.MalformedPort,
		connect("a.test:http"):      flow.MalformedPort,
		connect("a.test:"):          flow.MalformedPort,
		connect("a.test:+443"):      flow.MalformedPort,
		connect("a.test:-1"):        flow.MalformedPort,
		connect("a.test"):           flow.MalformedTarget, // BC-8
		connect("[::1]"):            flow.MalformedTarget,
		connect("::1:80"):           flow.MalformedTarget,
		connect("u@a.test:80"):      flow.MalformedTarget,
		connect("/path"):            flow.MalformedTarget,
		connect("a.test:80/path"):   flow.MalformedTarget,
		connect("a.test?q:80"):      flow.MalformedTarget,
		connect("http://a.test:80"): flow.MalformedTarget,
		connect("2130706433:80"):    flow.MalformedTarget,
		connect("0x7f.1:80"):        flow.MalformedTarget,
		connect("[127.0.0.1]:80"):   flow.MalformedTarget,
		connect("[a.test]:80"):      flow.MalformedTarget,
		connect(":80"):              flow.MalformedTarget,
		connect("[]:80"):            flow.MalformedTarget,
		"CONNECT a\x01.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n":                      flow.MalformedTarget,
		"CONNECT  HTTP/1.1\r\nHost: a.test\r\n\r\n":                                      flow.MalformedRequestLine, // BC-9
		"CONNECT a.test:80\r\n\r\n":                                                      flow.MalformedRequestLine,
		"CONNECT  a.test:80 HTTP/1.1\r\n\r\n":                                            flow.MalformedRequestLine,
		"CONNECT\ta.test:80 HTTP/1.1\r\n\r\n":                                            flow.MalformedRequestLine,
		"CONNECT a.test:80 HTTP/1.1\n\n":                                                 flow.MalformedRequestLine,
		"\r\nCONNECT a.test:80 HTTP/1.1\r\n\r\n":                                         flow.MalformedRequestLine,
		"CONNECT a.test:80 HTTP/1.11\r\n\r\n":                                            flow.MalformedRequestLine,
		"CONNECT a.test:80 http/1.1\r\n\r\n":                                             flow.MalformedRequestLine,
		"CONNECT a.test:80 HTTP/2.0\r\n\r\n":                                             flow.UnsupportedVersion, // BC-10
		"CONNECT a.test:80 HTTP/1.2\r\n\r\n":                                             flow.UnsupportedVersion,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                               flow.UnsupportedVersion, // BH-9
		"connect a.test:80 HTTP/1.1\r\n\r\n":                                             flow.ConnectOnly,        // BC-11
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n":                                              flow.ConnectOnly,
		"POST / HTTP/1.1\r\nHost: a\r\n\r\n":                                             flow.ConnectOnly,
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n": flow.ConnectOnly,
		"CONNECT a.test:80 HTTP/1.1\r\nBad Header: x\r\nHost: a.test:80\r\n\r\n":         flow.MalformedHeader, // BC-12
		"CONNECT a.test:80 HTTP/1.1\r\nHost : a.test:80\r\n\r\n":                         flow.MalformedHeader,
		"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n folded\r\n\r\n":               flow.MalformedHeader,
		"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\nX: a\x00b\r\n\r\n":             flow.MalformedHeader,
		"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\nX: y\r\n\r\n":                    flow.MalformedHeader,
		"CONNECT a.test:80 HTTP/1.1\r\nX: " + strings.Repeat("y", 70_000) + "\r\n\r\n":   flow.HeadTooLarge, // BC-13
		"CONNECT a.test:80 HTTP/1.1\r\n" + many + "Host: a.test:80\r\n\r\n":              flow.HeadTooLarge,
		connect("[fe80::1%25eth0]:80"):                                                   flow.ScopedIP, // BC-19
		"CONNECT [fe80::1%25eth0]:80 HTTP/1.1\r\n\r\n":                                   flow.MissingHost,
	} {
		if _, got, _ := read(t, in, true); got != want {
			t.Errorf("%.90q: %q, want %q", in, got, want)
		}
	}
}

// TestTargetsAreNormalised: BC-17, BC-18, BC-22, BC-23.
func TestTargetsAreNormalised(t *testing.T) {
	for in, want := range map[string]string{
		"OK.TEST.:80": "ok.test:80", "bücher.test:443": "xn--bcher-kva.test:443", "[::1]:80": "[::1]:80",
		"[::ffff:127.0.0.1]:80": "127.0.0.1:80", "[2001:DB8::1]:65535": "[2001:db8::1]:65535", "_x.test:1": "_x.test:1",
	} {
		target, fault, rest := read(t, connect(in)+"bytes behind", true)
		if fault != flow.None || target.String() != want || target.Transport != flow.TCP || rest != "bytes behind" {
			t.Errorf("%s: %s %q, rest %q, want %s", in, target, fault, rest, want)
		}
	}
}

// upgrade is a connect-udp head.
func upgrade(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: boundary\r\nConnection: keep-alive, Upgrade\r\nUpgrade: connect-udp\r\n\r\n"
}

func TestHeadsOfConnectUDP(t *testing.T) {
	for in, want := range map[string]string{
		"/.well-known/masque/udp/a.test/53/":            "a.test:53", // BU-1
		"/.well-known/masque/udp/A%2Etest./53/":         "a.test:53",
		"/.well-known/masque/udp/1.2.3.4/53/":           "1.2.3.4:53",
		"/.well-known/masque/udp/2001%3Adb8%3A%3A1/53/": "[2001:db8::1]:53",
	} {
		target, fault, _ := read(t, upgrade(in), true)
		if fault != flow.None || target.String() != want || target.Transport != flow.UDP {
			t.Errorf("%s: %s %q, want %s", in, target, fault, want)
		}
	}
	good := upgrade("/.well-known/masque/udp/a.test/53/")
	for in, want := range map[string]flow.Reason{
		upgrade("/"): flow.MalformedTemplate,
		upgrade("/.well-known/masque/udp/a.test/53"):                          flow.MalformedTemplate,
		upgrade("/.well-known/masque/udp/a.test/53/x"):                        flow.MalformedTemplate,
		upgrade("/.well-known/masque/udp//53/"):                               flow.MalformedTemplate,
		upgrade("/.well-known/masque/udp/::1/53/"):                            flow.MalformedTemplate, // a raw colon
		upgrade("/.well-known/masque/udp/%3A%3/53/"):                          flow.MalformedTemplate,
		upgrade("/.well-known/masque/udp/a%252Etest/53/"):                     flow.MalformedTemplate, // BU-8
		upgrade("/.well-known/masque/udp/a%2Ftest/53/"):                       flow.MalformedTemplate,
		upgrade("/.well-known/masque/udp/a%0Atest/53/"):                       flow.MalformedTemplate,
		upgrade("/.well-known/masque/udp/a.test/0/"):                          flow.MalformedPort,
		upgrade("/.well-known/masque/udp/127.1/53/"):                          flow.MalformedTarget,
		upgrade("/.well-known/masque/udp/fe80%3A%3A1%25eth0/53/"):             flow.ScopedIP,
		strings.Replace(good, "Connection: keep-alive, Upgrade\r\n", "", 1):   flow.MalformedUpgrade, // BU-10
		strings.Replace(good, "connect-udp", "connect-udp, websocket", 1):     flow.MalformedUpgrade,
		strings.Replace(good, "HTTP/1.1", "HTTP/1.0", 1):                      flow.MalformedUpgrade,
		strings.Replace(good, "\r\n\r\n", "\r\nContent-Length: 3\r\n\r\n", 1): flow.MalformedUpgrade,
		strings.Replace(good, "Host: boundary\r\n", "", 1):                    flow.MissingHost,
	} {
		if _, got, _ := read(t, in, true); got != want {
			t.Errorf("%.90q: %q, want %q", in, got, want)
		}
	}
	if target, fault, _ := read(t, good, false); fault != flow.UDPDisabled || target.Transport != flow.UDP { // BU-9
		t.Errorf("UDP is off: %q of %v", fault, target)
	}
	if _, fault, _ := read(t, upgrade("/other"), false); fault != flow.MalformedTemplate {
		t.Errorf("UDP is off and the path is no template: %q", fault)
	}
}

// TestIdentityIsNotRead: no field of a head changes what comes out (B33, BC-30).
func TestIdentityIsNotRead(t *testing.T) {
	plain, _, _ := read(t, connect("a.test:80"), true)
	forged := strings.Replace(connect("a.test:80"), "\r\n\r\n", "\r\nSandbox-Id: b\r\nX-Skep-Agent: b\r\nProxy-Authorization: Basic YjpiCg==\r\nForwarded: for=b\r\n\r\n", 1)
	if got, fault, _ := read(t, forged, true); got != plain || fault != flow.None {
		t.Errorf("%v %q, want %v", got, fault, plain)
	}
}

// TestSlowAndCutHeads: BC-14.
func TestSlowAndCutHeads(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _ = a.Close(); _ = b.Close() }()
	go func() { _, _ = io.WriteString(b, "CONNECT a.te") }()
	_ = a.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	var fault *HeadError
	if _, err := ReadHead(bufio.NewReader(a), true); !errors.As(err, &fault) || fault.Reason != flow.HeadTimeout {
		t.Errorf("a head that does not end: %v", err)
	}
	if errors.Is(os.ErrDeadlineExceeded, io.EOF) {
		t.Fatal("a deadline is no end")
	}
	if _, err := ReadHead(bufio.NewReader(strings.NewReader("")), true); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: %v", err)
	}
	for _, cut := range []string{"CONN", "CONNECT a.test:80 HTTP/1.1\r\n", "CONNECT a.test:80 HTTP/1.1\r\nHost: a"} {
		if _, err := ReadHead(bufio.NewReader(strings.NewReader(cut)), true); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", cut, err)
		}
	}
}

func FuzzHead(f *testing.F) {
	f.Add([]byte(connect("a.test:80")), true)
	f.Add([]byte(connect("[2001:db8::1]:80")), true)
	f.Add([]byte(upgrade("/.well-known/masque/udp/2001%3Adb8%3A%3A1/53/")), true)
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), false)
	f.Fuzz(func(t *testing.T, in []byte, udp bool) {
		target, err := ReadHead(bufio.NewReader(strings.NewReader(string(in))), udp)
		if err != nil {
			return
		}
		if target.Transport == flow.UDP && !udp {
			t.Fatalf("UDP is off, and %q passed", in)
		}
		// What passed means the same when we ask for it ourselves.
		var again strings.Builder
		if err := Ask(&again, target); err != nil {
			t.Fatal(err)
		}
		if back, err := ReadHead(bufio.NewReader(strings.NewReader(again.String())), true); err != nil || back != target {
			t.Fatalf("%q is %v, asked again %v: %v", in, target, back, err)
		}
	})
}
