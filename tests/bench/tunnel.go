package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stream is one connection to the server, by whatever way.
type stream interface {
	net.Conn
	CloseWrite() error
}

// reach connects to "host:port", or with "host:port@path" through the boundary that
// listens at a Unix socket, or with "host:port@tcp:host:port" through an HTTP proxy.
func reach(server string) (stream, error) {
	server, path, tunneled := strings.Cut(server, "@")
	if !tunneled {
		c, err := net.Dial("tcp", server)
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	network, at := "unix", path
	if proxy, ok := strings.CutPrefix(path, "tcp:"); ok {
		network, at = "tcp", proxy
	}
	c, err := net.Dial(network, at)
	if err != nil {
		return nil, err
	}
	status, err := open(c, server)
	if err == nil && status != "200" {
		err = fmt.Errorf("%s: %w", status, errRefused)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c.(stream), nil
}

var errRefused = errors.New("the tunnel is refused")

// open asks for a tunnel, and returns the status. The server sends nothing unasked, but what
// stands behind the head is left alone anyway.
func open(c net.Conn, server string) (status string, err error) {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", server); err != nil {
		return "", err
	}
	var head []byte
	for len(head) <= 4096 && !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		n := 1
		if len(head) == 0 {
			n = len(shortHead)
		}
		part := make([]byte, n)
		if _, err := io.ReadFull(c, part); err != nil {
			return "", fmt.Errorf("read the answer: %w", err)
		}
		head = append(head, part...)
	}
	_, after, _ := strings.Cut(string(head), " ")
	if len(after) < 3 {
		return "", fmt.Errorf("answered %q", head)
	}
	return after[:3], nil
}

// shortHead is the shortest that a proxy answers, ours: read at once.
const shortHead = "HTTP/1.1 200 OK\r\n\r\n"

// boundaryAt starts a boundary that allows the server, and waits until it listens.
func boundaryAt(dir, program string) (socket string, stop func() error, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", nil, err
	}
	host, port, err := splitPort(server)
	if err != nil {
		return "", nil, err
	}
	bundle := filepath.Join(dir, "bundle.yaml")
	text := fmt.Sprintf("version: v1\nagent: {id: bench.example}\negress: {allow: [{ip: %s, ports: [%d]}]}\n", host, port)
	if err := os.WriteFile(bundle, []byte(text), 0o600); err != nil {
		return "", nil, err
	}
	// The server's address is this namespace's own, which the floor keeps closed.
	ceiling := filepath.Join(dir, "ceiling.yaml")
	if err := os.WriteFile(ceiling, []byte("open: [{cidr: "+host+"/32}]\n"), 0o600); err != nil {
		return "", nil, err
	}
	socket = filepath.Join(dir, "s")
	c := exec.Command(program, "run", "--socket", socket, "--bundle", bundle, "--ceiling", ceiling, "--insecure-unverified-bundle", "--records", filepath.Join(dir, "records"))
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := c.StderrPipe()
	if err != nil {
		return "", nil, err
	}
	if err := c.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error { return errors.Join(c.Process.Signal(syscall.SIGTERM), c.Wait()) }
	late := time.AfterFunc(10*time.Second, func() { _ = c.Process.Kill() })
	defer late.Stop()
	var heard strings.Builder
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "listening at ") {
			go func() { _, _ = io.Copy(io.Discard, said) }()
			return socket, stop, nil
		}
		heard.WriteString(lines.Text() + "\n")
	}
	return "", nil, errors.Join(fmt.Errorf("the boundary did not start: %s", heard.String()), c.Wait())
}
