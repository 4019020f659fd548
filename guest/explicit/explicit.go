// Package explicit is the route for a place without a tun device: a CONNECT endpoint on
// loopback that the agent is told of by the usual variables (guest.md, G57).
//
// Its laws:
//   - It decides nothing: requests and answers pass unchanged but for fields that belong
//     to one hop. There is no SOCKS.
//   - What does not use it has no route.
package explicit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"skep.dev/skep/guest/channel"
	"skep.dev/skep/internal/tunnel"
)

// MaxFlows bounds the connections at once.
const MaxFlows = 1024

const headTime = 15 * time.Second

// Listen opens the endpoint on a free port of loopback.
func Listen() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the endpoint on loopback: %w", err)
	}
	return l, nil
}

// Variables are what tells programs of the endpoint.
func Variables(l net.Listener) []string {
	var all []string
	for name := range strings.FieldsSeq("HTTP_PROXY HTTPS_PROXY ALL_PROXY") {
		all = append(all, name+"=http://"+l.Addr().String(), strings.ToLower(name)+"=http://"+l.Addr().String())
	}
	return all
}

// Serve relays until the listener is closed.
func Serve(l net.Listener, boundary channel.Boundary) {
	flows := make(chan struct{}, MaxFlows)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case flows <- struct{}{}:
			go func() {
				defer func() { _ = c.Close(); <-flows }()
				relay(c, boundary)
			}()
		default:
			_ = c.Close()
		}
	}
}

func relay(c net.Conn, boundary channel.Boundary) {
	if c.SetReadDeadline(time.Now().Add(headTime)) != nil {
		return
	}
	r := bufio.NewReader(c)
	head, err := readHead(r)
	if err != nil || c.SetReadDeadline(time.Time{}) != nil {
		return
	}
	up, err := boundary.Dial(context.Background())
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	if _, err := io.WriteString(up, head); err != nil {
		return
	}
	channel.Relay(c, r, up)
}

// readHead takes one head as it is, without the fields of this hop. What is no head ends
// where that shows, and all of it goes to the boundary, whose answer says what is wrong.
func readHead(r *bufio.Reader) (string, error) {
	var head strings.Builder
	for fields := 0; head.Len() <= tunnel.MaxHead; fields++ {
		line, err := readLine(r)
		key, _, _ := strings.Cut(line, ":")
		if fields == 0 || !ofThisHop(key) {
			head.WriteString(line)
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) || head.Len() == 0:
			return "", err
		case err != nil || line == "\r\n" || !strings.HasSuffix(line, "\r\n"):
			return head.String(), nil
		}
	}
	return head.String(), nil
}

// readLine reads to the end of a line, or more than any head may have.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		line = append(line, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > tunnel.MaxHead {
			return string(line), err
		}
	}
}

func ofThisHop(key string) bool {
	return strings.EqualFold(key, "Proxy-Connection") || strings.EqualFold(key, "Proxy-Authorization") || strings.EqualFold(key, "Keep-Alive")
}
