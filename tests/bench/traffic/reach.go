package traffic

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
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
