package internet

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// forward is an operator's proxy that writes down what it is asked.
type forward struct {
	policy.Proxy
	mu     sync.Mutex
	asked  []string
	answer string            // instead of a tunnel
	to     map[string]string // where a destination is, for this proxy
}

func (f *forward) requests() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.asked, "|")
}

func (f *forward) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	q, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	f.mu.Lock()
	f.asked = append(f.asked, q.Method+" "+q.Host+" "+q.Header.Get("Proxy-Authorization"))
	answer, to := f.answer, f.to[q.Host]
	f.mu.Unlock()
	if answer != "" {
		_, _ = io.WriteString(c, answer)
		return
	}
	up, err := net.Dial("tcp", to)
	if err != nil {
		_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer up.Close()
	// The server's first bytes come with the answer: none of them may be lost.
	_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\nhello ")
	go func() {
		_, _ = io.Copy(up, in)
		_ = up.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, up)
}

// proxied is a lab whose flows go by way of a proxy.
func proxied(t *testing.T, secure bool, rules ...policy.Rule) (*lab, *forward) {
	t.Helper()
	f := &forward{to: map[string]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.Host, f.Port, f.TLS, f.Auth = "127.0.0.1", uint16(l.Addr().(*net.TCPAddr).Port), secure, "skep:pass"
	if secure {
		cert, roots := certificate(t)
		f.Roots = roots
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	lab := newLab(t)
	lab.install(policy.Policy{Rules: rules, Ceiling: policy.Ceiling{NoFloor: true, Proxy: &f.Proxy}})
	return lab, f
}

func certificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

func public(host string, addr string) policy.Rule {
	return policy.Rule{ID: host, Name: host, Ports: oneTo(), TCP: true, UDP: true, Inner: policy.InnerOff, Resolve: []netip.Addr{netip.MustParseAddr(addr)}}
}

// BC-51: the proxy is asked for the checked address, by the operator's credential, and
// what is refused it never sees.
func TestBC51Proxy(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "http", true: "https"}[secure], func(t *testing.T) {
			port, _ := serve(t, echo)
			l, f := proxied(t, secure, public("ok.test", "9.9.9.9"))
			f.to["9.9.9.9:7"] = fmt.Sprintf("127.0.0.1:%d", port)
			c := l.connect("ok.test", 7)
			if _, err := io.WriteString(c, "ping"); err != nil {
				t.Fatal(err)
			}
			_ = c.CloseWrite()
			got, _ := io.ReadAll(c)
			if string(got) != "hello ping" {
				t.Errorf("%q", got)
			}
			if r := l.last(); r.Address.String() != "9.9.9.9:7" || r.Verdict.Reason != flow.None || r.Up != 4 || r.Down != 10 {
				t.Errorf("%+v", r)
			}
			if want := "CONNECT 9.9.9.9:7 Basic c2tlcDpwYXNz"; f.requests() != want {
				t.Errorf("the proxy was asked %q, want %q", f.requests(), want)
			}
		})
	}
}

func TestProxyRefuses(t *testing.T) {
	l, f := proxied(t, false, public("ok.test", "9.9.9.9"))
	for _, answer := range []string{"HTTP/1.1 407 Proxy Authentication Required\r\nX-Text: secret\r\n\r\n", "SSH-2.0-x\r\n", "HTTP/1.1 200 OK"} {
		f.mu.Lock()
		f.answer = answer
		f.mu.Unlock()
		c := l.connect("ok.test", 7)
		got, _ := io.ReadAll(c)
		if r := l.last(); r.Verdict.Reason != flow.ProxyFailed || len(got) > 0 {
			t.Errorf("%q: %+v, %q", answer, r, got)
		}
	}
	before := f.requests()
	l.install(policy.Policy{Rules: []policy.Rule{{ID: "r", Name: "private.test", Ports: oneTo(), TCP: true}}, Ceiling: policy.Ceiling{NoFloor: true, Proxy: &f.Proxy}})
	l.dest.Set(nil, map[string][]netip.Addr{"private.test": {netip.MustParseAddr("10.0.0.1")}})
	c := l.connect("private.test", 7)
	_, _ = io.ReadAll(c)
	if r := l.last(); r.Verdict.Reason != flow.ResolvedAddressDenied || f.requests() != before {
		t.Errorf("%+v, the proxy was asked %q", r, f.requests())
	}
	// A certificate that nobody vouches for.
	l, f = proxied(t, true, public("ok.test", "9.9.9.9"))
	_, f.Roots = certificate(t)
	l.install(policy.Policy{Rules: []policy.Rule{public("ok.test", "9.9.9.9")}, Ceiling: policy.Ceiling{NoFloor: true, Proxy: &f.Proxy}})
	_, _ = io.ReadAll(l.connect("ok.test", 7))
	if r := l.last(); r.Verdict.Reason != flow.ProxyFailed || f.requests() != "" {
		t.Errorf("%+v, %q", r, f.requests())
	}
}

// B180, B181: names that the operator lists go past the proxy, others by name where it is
// to be asked so, and nobody reaches the proxy itself.
func TestProxyByNameAndDirect(t *testing.T) {
	port, _ := serve(t, echo)
	l, f := proxied(t, false)
	f.ByName, f.Direct = true, []string{"direct.test", ".inside.test"}
	f.to["far.test:443"] = fmt.Sprintf("127.0.0.1:%d", port)
	any := policy.Rule{ID: "any", Name: policy.AnyName, Ports: oneTo(), TCP: true, UDP: true, Inner: policy.InnerOff}
	self := policy.Rule{ID: "self", IP: netip.MustParseAddr("127.0.0.1"), Ports: oneTo(), TCP: true, UDP: true}
	l.install(policy.Policy{Rules: []policy.Rule{any, self}, Resolved: []policy.Range{{CIDR: netip.MustParsePrefix("127.0.0.0/8"), Ports: oneTo()}},
		Ceiling: policy.Ceiling{NoFloor: true, Proxy: &f.Proxy}})
	l.dest.Set(nil, map[string][]netip.Addr{"direct.test": {netip.MustParseAddr("127.0.0.1")}, "a.inside.test": {netip.MustParseAddr("127.0.0.1")}})
	say := func(host string, port uint16) string {
		c := l.connect(host, port)
		_, _ = io.WriteString(c, "ping")
		_ = c.CloseWrite()
		got, _ := io.ReadAll(c)
		return string(got)
	}
	if got := say("far.test", 443); got != "hello ping" || l.last().Address.IsValid() {
		t.Errorf("%q, %+v", got, l.last())
	}
	for _, host := range []string{"direct.test", "a.inside.test"} {
		if got := say(host, port); got != "ping" {
			t.Errorf("%s: %q", host, got)
		}
		_ = l.last()
	}
	if f.requests() != "CONNECT far.test:443 Basic c2tlcDpwYXNz" {
		t.Errorf("%q", f.requests())
	}
	say("127.0.0.1", f.Port)
	if r := l.last(); r.Verdict.AllowWith != policy.NotPermitted || r.Verdict.Reason != flow.IPNotOnAllowlist {
		t.Errorf("the proxy itself: %+v", r.Verdict)
	}
	say("direct.test", f.Port)
	if r := l.last(); r.Verdict.Reason != flow.ResolvedAddressDenied {
		t.Errorf("a name of the proxy: %+v", r.Verdict)
	}
	q := flow.Request{ID: flow.NewID(), Cell: "c", Direction: flow.Out, Wire: flow.Native, Transport: flow.UDP, Name: "far.test", Port: 443, Count: 1}
	if v := policy.Decide(q, l.policy); v.Reason != flow.TransportNotAllowed {
		t.Errorf("UDP past the proxy: %+v", v)
	}
}
