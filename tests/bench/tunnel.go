package main

import (
	"bufio"
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
// listens at a Unix socket.
func reach(server string) (stream, error) {
	server, path, tunneled := strings.Cut(server, "@")
	if !tunneled {
		c, err := net.Dial("tcp", server)
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	if err := open(c, server); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// open asks for a tunnel. The server sends nothing unasked, so nothing stands behind the answer.
func open(c net.Conn, server string) error {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", server); err != nil {
		return err
	}
	const good = "HTTP/1.1 200 OK\r\n\r\n"
	answer := make([]byte, len(good))
	if _, err := io.ReadFull(c, answer); err != nil {
		return fmt.Errorf("read the boundary's answer: %w", err)
	}
	if string(answer) != good {
		return fmt.Errorf("the boundary answered %q", answer)
	}
	return nil
}

// throughSocket measures a tunnel over a Unix socket beside the same client on loopback:
// skep-box run, every intent durable first.
func throughSocket(s *settings, direct *client) (rows []Row, err error) {
	socket, stop, err := boundaryAt(filepath.Join(s.dir, "tunnel"), filepath.Join(s.bin, "skep-box"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	tunnel := started("tunnel", exec.Command(s.self, roleArgument, "client", server+"@"+socket))
	if tunnel.close != nil {
		defer func() { _ = tunnel.close() }()
	}
	size := 256 // MiB
	if s.quick {
		size = 64
	}
	for _, m := range []struct {
		op, measure, unit string
		n                 int
	}{
		{"up", "tunnel: throughput up, one flow", "Gbit/s", size}, {"down", "tunnel: throughput down, one flow", "Gbit/s", size},
		{"kept", "tunnel: request on a kept connection, p50", "us", 2000}, {"fresh", "tunnel: fresh flow with one request, p50", "ms", 100},
		{"flows", "tunnel: new flows a second, 64 at a time", "/s", 512},
	} {
		ours, theirs := tunnel.contender(m.op, m.n, nil), direct.contender(m.op, m.n, nil)
		if err := alternate(s.rounds(30), ours, theirs); err != nil {
			return rows, err
		}
		rows = append(rows, against(m.measure, m.unit, ours, theirs, "", nil))
	}
	return rows, nil
}

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
