package start

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mdlayher/vsock"

	"skep.dev/skep/guest/channel"
	"skep.dev/skep/guest/explicit"
)

// boundaryPort is what a monitor maps to <uds>_1080.
const boundaryPort = 1080

// monitor is what a virtual machine's monitor does with a connect of its guest: the one
// port is a Unix socket of the host, and no other is anything.
func monitor(socket string) func(cid, port uint32) (net.Conn, error) {
	return func(cid, port uint32) (net.Conn, error) {
		if cid != vsock.Host || port != boundaryPort {
			return nil, syscall.ECONNRESET
		}
		return net.Dial("unix", socket)
	}
}

// through asks the endpoint of a guest for a destination, and says what the answer was.
func through(t *testing.T, b channel.Boundary, to string) (net.Conn, string) {
	t.Helper()
	l, err := explicit.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go explicit.Serve(l, b)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	status, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return c, err.Error()
	}
	_, code, _ := strings.Cut(strings.TrimSpace(status), " ")
	return c, code[:3]
}

// TestBG25Guest: two machines ask for the same and are judged by their own policies; a
// port that is no boundary's is refused, and nobody has a record of it; a channel serves
// another only after what was open on it has ended.
func TestBG25Guest(t *testing.T) {
	_, port, _ := net.SplitHostPort(echo(t))
	a, first := serveReal(t, allow("a.test", port))
	b, second := serveReal(t, allow("b.test", port))
	at, bt := channel.Over(vsock.Host, boundaryPort, monitor(a.path)), channel.Over(vsock.Host, boundaryPort, monitor(b.path))
	open, how := through(t, at, "a.test:"+port)
	if how != "200" {
		t.Fatalf("A asks for its own: %s", how)
	}
	if _, how := through(t, bt, "a.test:"+port); how != "403" {
		t.Errorf("B asks for A's: %s", how)
	}
	before := len(first.lines())
	if _, how := through(t, channel.Over(vsock.Host, boundaryPort+1, monitor(a.path)), "a.test:"+port); how != "EOF" {
		t.Errorf("another port: %s", how)
	}
	if n := len(first.lines()); n != before {
		t.Errorf("%d records of another port", n-before)
	}
	first.end(syscall.SIGTERM)
	if rest, err := io.ReadAll(open); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a flow outlives its boundary: %q, %v", rest, err)
	}
	first.rules(allow("c.test", port))
	first.start() // the same channel, for another
	if _, how := through(t, at, "a.test:"+port); how != "403" {
		t.Errorf("the successor lets what its predecessor did: %s", how)
	}
	if _, how := through(t, at, "c.test:"+port); how != "200" {
		t.Errorf("the successor: %s", how)
	}
	if got := second.reasons(); got["tcp c.test:"+port] != "" || len(got) != 1 {
		t.Errorf("B's records: %q", got)
	}
}

// TestVsockLoopbackGuest: the dialer over the kernel's own AF_VSOCK (G55).
func TestVsockLoopbackGuest(t *testing.T) {
	if _, err := os.Stat("/sys/module/vsock_loopback"); err != nil {
		t.Skip("this kernel has no vsock_loopback: a connect would go to the host of this machine")
	}
	l, err := vsock.Listen(0, nil)
	if err != nil {
		t.Skipf("no vsock listener: %v", err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(echo(t))
	box, _ := serveReal(t, allow("ok.test", port))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("unix", box.path)
			if err != nil {
				_ = c.Close()
				continue
			}
			go func() { channel.Relay(c, c, up); _, _ = c.Close(), up.Close() }()
		}
	}()
	const local = 1 // VMADDR_CID_LOCAL
	b, err := channel.Parse(fmt.Sprintf("vsock://%d:%d", local, l.Addr().(*vsock.Addr).Port))
	if err != nil {
		t.Fatal(err)
	}
	if err := answers(b, time.Second); err != nil {
		t.Fatal(err)
	}
	c, how := through(t, b, "ok.test:"+port)
	if _, err := c.Write([]byte("x")); how != "200" || err != nil {
		t.Errorf("%s, %v", how, err)
	}
	if _, how := through(t, b, "no.test:"+port); how != "403" {
		t.Errorf("%s", how)
	}
}

// TestVsockAddresses: what names a port of a machine, and how long a silent one is waited for.
func TestVsockAddresses(t *testing.T) {
	for text, good := range map[string]bool{"vsock://2:1080": true, "vsock://2": false, "vsock://2:0": false, "vsock://x:1": false, "vsock://:1": false, "vsock://4294967296:1": false, "": false} {
		if b, err := channel.Parse(text); (err == nil) != good || good && b.String() != text {
			t.Errorf("%q: %v, %v", text, b, err)
		}
	}
	silent := channel.Over(vsock.Host, boundaryPort, func(uint32, uint32) (net.Conn, error) { select {} })
	if err := answers(silent, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "the boundary does not answer at vsock://2:1080") {
		t.Errorf("%v", err)
	}
	for _, errno := range []syscall.Errno{syscall.ENODEV, syscall.ECONNRESET} {
		b := channel.Over(vsock.Host, boundaryPort, func(uint32, uint32) (net.Conn, error) { return nil, errno })
		if err := answers(b, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "(VM) is vsock configured") {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := answers(channel.Boundary{}, 50*time.Millisecond); err == nil {
		t.Error("nowhere answers")
	}
}
