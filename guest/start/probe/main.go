// Command probe is an agent for the tests of skep-init: each argument is one attempt,
// and a line of its output says how that ended.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	for _, attempt := range os.Args[1:] {
		how, at, _ := strings.Cut(attempt, "=")
		got, err := try(how, at)
		var errno syscall.Errno
		switch {
		case errors.As(err, &errno):
			got = errno.Error()
		case err != nil:
			got = err.Error()
		}
		fmt.Printf("%s: %s\n", attempt, got)
	}
}

func try(how, at string) (string, error) {
	switch how {
	case "tcp", "udp":
		return talk(how, at, []byte("hello"))
	case "bulk":
		return bulk(at)
	case "wait":
		return wait(at)
	case "lookup":
		found, err := net.LookupHost(at)
		return strings.Join(found, " "), err
	case "mx":
		found, err := net.LookupMX(at)
		return strconv.Itoa(len(found)), err
	case "caps":
		return status()
	case "serve":
		return serve(at)
	case "env":
		return os.Getenv(at), nil
	case "proxied":
		return proxied(at)
	case "read":
		text, err := os.ReadFile(at)
		return strings.TrimSpace(string(text)), err
	case "down":
		return "", down(at)
	case "socks":
		return socks()
	case "unix":
		return unixSocket(at)
	case "forged":
		return forged(at)
	case "reach":
		return reach(at)
	case "stream":
		return stream(at)
	case "exact":
		return exact(at)
	case "abort":
		return abort(at)
	case "one port":
		return onePort(at)
	case "loopback":
		return loopback()
	}
	if try, ok := kernel()[how]; ok {
		return try(at)
	}
	return "", fmt.Errorf("no attempt %q", how)
}

func talk(network, at string, text []byte) (string, error) {
	c, err := net.DialTimeout(network, at, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := c.Write(text); err != nil {
		return "", err
	}
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c, buf); err != nil {
		return "", err
	}
	return string(buf), nil
}

// bulk sends many bytes, ends its direction, and counts what comes back.
func bulk(at string) (string, error) {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	const size = 64 << 20
	go func() {
		_, _ = io.CopyN(c, zeros{}, size)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	n, err := io.Copy(io.Discard, c)
	return strconv.FormatInt(n, 10), err
}

// serve answers one connection, with its own bytes.
func serve(at string) (string, error) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return "", err
	}
	fmt.Println("ready")
	c, err := l.Accept()
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	n, err := io.Copy(c, c)
	return strconv.FormatInt(n, 10), err
}

// proxied asks the endpoint of the variables for a tunnel, with fields that lie.
func proxied(at string) (string, error) {
	c, err := net.Dial("tcp", strings.TrimPrefix(os.Getenv("HTTPS_PROXY"), "http://"))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic eDp5\r\nSandbox-Id: other\r\n\r\n", at, at)
	r := bufio.NewReader(c)
	status, err := r.ReadString('\n')
	return strings.TrimSpace(status), err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// status is what the kernel says of our power.
func status() (string, error) {
	text, err := os.ReadFile("/proc/self/status")
	var out []string
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("CapEff")) || bytes.HasPrefix(line, []byte("CapBnd")) || bytes.HasPrefix(line, []byte("NoNewPrivs")) {
			out = append(out, strings.Join(strings.Fields(string(line)), ""))
		}
	}
	return strings.Join(out, " "), err
}

// down tries to set an interface down.
func down(name string) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	return setFlags(fd, name, 0)
}
