package testlab

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

func lookup(t *testing.T, host string) []netip.Addr {
	t.Helper()
	r := &net.Resolver{PreferGo: true}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	addrs, err := r.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}

func dial(t *testing.T, at string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", at, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func TestEveryAddressIsServedHere(t *testing.T) {
	l := New(t)
	for _, at := range []string{
		"8.8.8.8:443", "1.1.1.1:80", "10.0.0.1:22", "169.254.169.254:80", "127.0.0.1:7000", "100.64.0.9:80", "77.88.55.60:80",
		"[2606:4700:4700::1111]:443", "[fd00:ec2::254]:80", "[::1]:7000",
	} {
		l.Greet(at, "I am "+at)
		got := make([]byte, len("I am "+at))
		if _, err := io.ReadFull(dial(t, at), got); err != nil || string(got) != "I am "+at {
			t.Errorf("%s said %q, %v", at, got, err)
		}
		if len(l.Reached(at)) != 1 {
			t.Errorf("the connection to %s is not recorded: %+v", at, l.Connections())
		}
	}
	if _, err := net.DialTimeout("tcp", "8.8.4.4:443", 5*time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("an address that nobody serves: %v, want connection refused", err)
	}
}

func TestNamesFollowTheirScripts(t *testing.T) {
	l := New(t)
	l.Host("ok.example", "93.184.216.34", "2606:2800:220:1::1")
	if got := lookup(t, "OK.example"); !slices.Equal(got, Addrs("93.184.216.34")) {
		t.Errorf("ok.example is %v", got)
	}
	l.Alias("alias.example", "target.example", "5.5.5.5")
	if got := lookup(t, "alias.example"); !slices.Equal(got, Addrs("5.5.5.5")) {
		t.Errorf("alias.example is %v", got)
	}
	l.Script("rebind.example", Answer{Addrs: Addrs("6.6.6.6")}, Answer{Addrs: Addrs("127.0.0.1")})
	for _, want := range []string{"6.6.6.6", "127.0.0.1", "127.0.0.1"} {
		if got := lookup(t, "rebind.example"); !slices.Equal(got, Addrs(want)) {
			t.Errorf("rebind.example is %v, want %s", got, want)
		}
	}
	l.Rotate("turn.example", "1.0.0.1", "1.0.0.2")
	for i := range 5 {
		if got := lookup(t, "turn.example"); got[0] != Addrs("1.0.0.1", "1.0.0.2")[i%2] {
			t.Errorf("answer %d of turn.example is %v", i, got)
		}
	}
	l.Script("short.example", Answer{Addrs: Addrs("7.7.7.7"), Short: true})
	if got := lookup(t, "short.example"); !slices.Equal(got, Addrs("7.7.7.7")) {
		t.Errorf("short.example is %v", got)
	}
	if n := l.Asked("rebind.example", "A"); n != 3 {
		t.Errorf("%d queries for rebind.example, want 3: %v", n, l.Queries())
	}
	var dnsError *net.DNSError
	if _, err := net.DefaultResolver.LookupHost(context.Background(), "nobody.example"); !errors.As(err, &dnsError) || !dnsError.IsNotFound {
		t.Errorf("nobody.example: %v, want not found", err)
	}
}

func TestServersRecordWhatTheyGet(t *testing.T) {
	l := New(t)
	l.Host("web.example", "8.8.8.8")
	l.HTTP("8.8.8.8:80", nil)
	l.HTTPS("8.8.8.8:443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "secure") }))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: l.Pool()}}, Timeout: 10 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	for url, want := range map[string]string{"http://web.example/a": "hello", "https://web.example/b": "secure"} {
		r, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if string(body) != want {
			t.Errorf("%s says %q", url, body)
		}
	}
	names := map[string]string{}
	for _, r := range l.Requests() {
		names[r.Path] = r.Host + " " + r.ServerName
	}
	if names["/a"] != "web.example " || names["/b"] != "web.example web.example" {
		t.Errorf("requests: %v", names)
	}
	c := dial(t, l.Echo("9.1.1.1:7").String())
	if _, err := io.WriteString(c, "ping"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if seen := l.Reached("9.1.1.1:7"); len(seen) != 1 || string(seen[0].First) != "ping" || seen[0].Received != 4 {
		t.Errorf("the echo server's record: %+v", seen)
	}
	_ = c.Close()
	l.Await("the echo's end", func() bool { return l.Reached("9.1.1.1:7")[0].Closed })
}

func TestDatagramsComeBackFromWhereTheyWent(t *testing.T) {
	l := New(t)
	l.UDPEcho("8.8.8.8:9000")
	c, err := net.Dial("udp", "8.8.8.8:9000")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 10)
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != "ping" || len(l.Datagrams()) != 1 {
		t.Errorf("got %q, %v; recorded %v", buf[:n], err, l.Datagrams())
	}
}

// TestNoPowerIsLeft: a program that runs in the lab is as weak as outside.
func TestNoPowerIsLeft(t *testing.T) {
	New(t)
	if os.Getuid() == 0 {
		t.Skip("root has its powers outside too")
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("80"), 0o644); err == nil {
		t.Error("the tests may still change the lab's network")
	}
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"CapPrm", "CapEff", "CapAmb"} {
		if !strings.Contains(string(text), set+":\t0000000000000000\n") {
			t.Errorf("%s is not empty:\n%s", set, text)
		}
	}
}
