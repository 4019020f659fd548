// Package ingress serves the reverse channel of a guest: one stream for each request
// that the boundary delivers, to the one pinned port of the agent.
//
// Its laws:
//   - The port is pinned before the agent runs; a handshake selects nothing, and only
//     loopback is dialed (boundary.md, B172).
//   - Bytes that arrive together with a handshake are never lost (B175).
package ingress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/vsock"

	"skep.dev/skep/guest/channel"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/tunnel"
)

// Bounds (B150).
const (
	maxFlows      = 256
	handshakeTime = 10 * time.Second
	dialTime      = 10 * time.Second
)

// Server delivers to one port.
type Server struct {
	Port uint16
	Form tunnel.Form

	flows chan struct{}
}

// Listen opens a socket path, mode 0600, or "vsock://:PORT".
func Listen(at string) (net.Listener, error) {
	if port, ok := strings.CutPrefix(at, "vsock://:"); ok {
		n, err := strconv.ParseUint(port, 10, 32)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("ingress socket %q: want vsock://:PORT", at)
		}
		return vsock.Listen(uint32(n), nil)
	}
	if len(at) > channel.MaxPath {
		return nil, fmt.Errorf("the ingress socket's path has %d bytes; want 1 to %d", len(at), channel.MaxPath)
	}
	l, err := net.Listen("unix", at)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(at, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve accepts until the listener is closed.
func (s *Server) Serve(l net.Listener) {
	s.flows = make(chan struct{}, maxFlows)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case s.flows <- struct{}{}:
			go func() {
				defer func() { _ = c.Close(); <-s.flows }()
				s.deliver(c)
			}()
		default:
			_ = c.Close()
		}
	}
}

func (s *Server) deliver(c net.Conn) {
	if c.SetDeadline(time.Now().Add(handshakeTime)) != nil {
		return
	}
	r := bufio.NewReader(c)
	i, err := tunnel.ReadIngress(r, s.Port, s.Form)
	if err != nil {
		var fault *tunnel.HeadError
		if errors.As(err, &fault) {
			_, _ = io.WriteString(c, i.Refused(fault.Reason))
		}
		return
	}
	agent, err := s.dial()
	if err != nil {
		_, _ = io.WriteString(c, i.Refused(flow.IngressUnreachable))
		return
	}
	defer func() { _ = agent.Close() }()
	if _, err := io.WriteString(c, i.Accepted()); err != nil || c.SetDeadline(time.Time{}) != nil {
		return
	}
	channel.Relay(c, r, agent)
}

// dial tries the two loopback addresses and nothing else (G70).
func (s *Server) dial() (net.Conn, error) {
	port := strconv.Itoa(int(s.Port))
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), dialTime)
	if err != nil {
		c, err = net.DialTimeout("tcp", net.JoinHostPort("::1", port), dialTime)
	}
	return c, err
}
