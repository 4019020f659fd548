package box

import (
	"errors"
	"fmt"
	"net"
	"os"

	"skep.dev/skep/internal/sys"
)

// The ports of two kinds of sockets in the cell's namespace (B10).
const (
	dnsPort = 65053
	udpPort = 65002
)

// sockets are the listeners in the cell's network namespace.
type sockets struct {
	tcp    []*net.TCPListener // redirected connections
	udp    []*net.UDPConn     // redirected datagrams; none of a warden of a build that carried none
	dnsUDP []*net.UDPConn
	dnsTCP []*net.TCPListener
	log    *os.File // the early gate's log
	ipv6   bool
	warden *os.File // where the sockets come from another box: the warden's own socket
}

// receive takes the one message in which the warden hands over the sockets
// (B10), and sorts them by what the kernel says that they are. Of a warden, the rest of
// the message tells nothing that the sockets do not; another box gives the warden's
// socket, too, and the message begins what it leaves (L20a).
func receive(warden *os.File) (_ *sockets, message []byte, err error) {
	buf := make([]byte, maxLegacy)
	n, files, err := sys.RecvFDs(warden, buf, sys.MaxPassedFDs)
	if err != nil {
		return nil, nil, fmt.Errorf("receive the cell's sockets: %w", err)
	}
	if n == 0 {
		return nil, nil, ErrWardenGone
	}
	s := &sockets{}
	seen := map[string]bool{}
	for i, f := range files {
		if err := s.sort(f, seen); err != nil {
			sys.CloseAll(files[i+1:])
			s.close()
			return nil, nil, fmt.Errorf("receive the cell's sockets: %w", err)
		}
	}
	if len(s.tcp) == 0 || len(s.dnsUDP) == 0 || len(s.dnsTCP) == 0 || s.log == nil {
		s.close()
		return nil, nil, errors.New("receive the cell's sockets: one of the listeners or the log is missing")
	}
	return s, buf[:n], nil
}

// sort takes one socket. Without IPv6 the IPv4 socket stands in both places, so
// a second one with the same address is closed.
func (s *sockets) sort(f *os.File, seen map[string]bool) error {
	kind, err := sys.KindOf(f)
	if err != nil {
		_ = f.Close()
		return err
	}
	if kind.IsNetlink() {
		if s.log != nil {
			_ = f.Close()
			return nil
		}
		s.log, err = sys.Pollable(f)
		return err
	}
	if kind.IsMessages() {
		if s.warden != nil {
			_ = f.Close()
			return errors.New("two sockets of a warden")
		}
		s.warden = f
		return nil
	}
	defer func() { _ = f.Close() }() // the net package keeps a duplicate
	key := fmt.Sprint(kind.Type, kind.Addr)
	if seen[key] {
		return nil
	}
	seen[key] = true
	switch {
	case kind.IsDatagram():
		c, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		u, ok := c.(*net.UDPConn)
		if !ok {
			_ = c.Close()
			return fmt.Errorf("socket at %s is not of UDP", kind.Addr)
		}
		if kind.Addr.Port() == udpPort {
			s.udp = append(s.udp, u)
			return nil
		}
		s.dnsUDP = append(s.dnsUDP, u)
	case kind.IsStream():
		l, err := net.FileListener(f)
		if err != nil {
			return err
		}
		t, ok := l.(*net.TCPListener)
		switch {
		case !ok:
			_ = l.Close()
			return fmt.Errorf("socket at %s is no TCP listener", kind.Addr)
		case kind.Addr.Port() == dnsPort:
			s.dnsTCP = append(s.dnsTCP, t)
		default:
			s.tcp = append(s.tcp, t)
			s.ipv6 = s.ipv6 || kind.Is6()
		}
	default:
		return fmt.Errorf("socket of domain %d and type %d is none that a box serves", kind.Domain, kind.Type)
	}
	return nil
}

// close ends everything.
func (s *sockets) close() {
	s.closeListeners()
	s.closeRest()
}

// part ends everything but the sockets by which the flows of datagrams that are under way
// are answered.
func (s *sockets) part() {
	s.closeConnected()
	s.closeRest()
}

func (s *sockets) closeRest() {
	if s.warden != nil {
		_ = s.warden.Close()
	}
	if s.log != nil {
		_ = s.log.Close()
	}
}

// closeListeners makes the kernel reset what the cell opens from now on, and drop its
// datagrams.
func (s *sockets) closeListeners() {
	s.closeConnected()
	for _, c := range s.udp {
		_ = c.Close()
	}
}

func (s *sockets) closeConnected() {
	for _, l := range s.tcp {
		_ = l.Close()
	}
	for _, l := range s.dnsTCP {
		_ = l.Close()
	}
	for _, c := range s.dnsUDP {
		_ = c.Close()
	}
}
