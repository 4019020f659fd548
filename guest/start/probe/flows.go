package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// dial reaches an address as the route wants: through the endpoint where there is one.
func dial(at string) (*flow, error) {
	proxy := strings.TrimPrefix(os.Getenv("HTTPS_PROXY"), "http://")
	if proxy == "" {
		proxy = at
	}
	c, err := net.DialTimeout("tcp", proxy, 10*time.Second)
	if err != nil {
		return nil, err
	}
	f := &flow{c.(*net.TCPConn), bufio.NewReader(c)}
	if proxy == at {
		return f, nil
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", at, at)
	status, err := f.r.ReadString('\n')
	for line := status; err == nil && line != "\r\n"; {
		line, err = f.r.ReadString('\n')
	}
	if err == nil && !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		err = fmt.Errorf("%s", strings.TrimSpace(status))
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return f, nil
}

// flow is a connection whose first bytes may be read already.
type flow struct {
	*net.TCPConn
	r *bufio.Reader
}

func (f *flow) Read(p []byte) (int, error) { return f.r.Read(p) }

// reach sends a word and has it back.
func reach(at string) (string, error) {
	c, err := dial(at)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte("hello")); err != nil {
		return "", err
	}
	word := make([]byte, 5)
	_, err = io.ReadFull(c, word)
	return string(word), err
}

// stream opens a flow, says so, and reads until it ends; how, is the result.
func stream(at string) (string, error) {
	c, err := dial(at)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("x")); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return "", err
	}
	fmt.Println("ready")
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, err = io.Copy(io.Discard, c)
	return "end", err
}

// exact sends many bytes that are no pattern, and compares what comes back: "SIZE ADDRESS".
func exact(at string) (string, error) {
	text, at, _ := strings.Cut(at, " ")
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return "", err
	}
	c, err := dial(at)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	sent := make(chan string, 1)
	go func() {
		sum := sha256.New()
		_, _ = io.Copy(io.MultiWriter(c, sum), io.LimitReader(rand.NewChaCha8([32]byte{1}), size))
		_ = c.CloseWrite()
		sent <- fmt.Sprintf("%x", sum.Sum(nil))
	}()
	sum := sha256.New()
	n, err := io.Copy(sum, c)
	if got := fmt.Sprintf("%x", sum.Sum(nil)); err != nil || n != size || got != <-sent {
		return fmt.Sprintf("%d bytes came back, or others", n), err
	}
	return "exact", nil
}

// abort ends a flow by a reset.
func abort(at string) (string, error) {
	c, err := dial(at)
	if err != nil {
		return "", err
	}
	_ = c.SetLinger(0)
	_, err = c.Write([]byte("x"))
	_, _ = io.ReadFull(c, make([]byte, 1))
	return "", errorsOf(err, c.Close())
}

// loopback serves itself on both addresses.
func loopback() (string, error) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			return "", err
		}
		go func() {
			if c, err := l.Accept(); err == nil {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}
		}()
		if _, err := talk("tcp", l.Addr().String(), []byte("own")); err != nil {
			return "", err
		}
	}
	return "ok", nil
}

func errorsOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// wait says "ready", and goes on when somebody has made a file.
func wait(path string) (string, error) {
	fmt.Println("ready")
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		if _, err := os.Stat(path); err == nil {
			return "", nil
		}
	}
	return "", os.ErrDeadlineExceeded
}

// unixSocket connects to a path.
func unixSocket(path string) (string, error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return "", err
	}
	return "connected", c.Close()
}

// forged asks a boundary for a destination as if we were another: "PATH DESTINATION".
func forged(at string) (string, error) {
	path, to, _ := strings.Cut(at, " ")
	c, err := net.Dial("unix", path)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nSandbox-Id: b\r\nX-Skep-Agent: b\r\nProxy-Authorization: Basic Yjpi\r\nForwarded: for=b\r\n\r\n", to, to)
	status, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(status), err
}

// socks greets the endpoint as a SOCKS client does.
func socks() (string, error) {
	c, err := net.Dial("tcp", strings.TrimPrefix(os.Getenv("HTTPS_PROXY"), "http://"))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte{5, 1, 0}); err != nil {
		return "", err
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_, err = io.ReadFull(c, make([]byte, 2))
	return "answered", err
}

// onePort connects from one port again and again, each time after the server has closed.
func onePort(at string) (string, error) {
	from, slowest := &net.TCPAddr{}, time.Duration(0)
	for range 5 {
		begin := time.Now()
		c, err := (&net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}).Dial("tcp", at)
		if err != nil {
			return "", err
		}
		from = &net.TCPAddr{Port: c.LocalAddr().(*net.TCPAddr).Port}
		said, err := io.ReadAll(c)
		_ = c.Close()
		if err != nil || string(said) != "bye" {
			return string(said), err
		}
		if took := time.Since(begin); took > slowest {
			slowest = took
		}
	}
	if slowest > 5*time.Second {
		return "slow: " + slowest.String(), nil
	}
	return "at once", nil
}
