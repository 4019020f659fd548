package cases

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// servers echo at one port of 127.0.0.1, ::1 and 127.0.0.2, over TCP and UDP, and keep
// what came.
type servers struct {
	udp *net.UDPConn

	mu    sync.Mutex
	dials int
	heard bytes.Buffer
	from  netip.AddrPort // of the last datagram
}

// Serve begins the servers.
func (b *Bench) Serve() {
	b.Helper()
	b.echo = &servers{}
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatalf("listen: %v", err)
	}
	b.Port = netip.MustParseAddrPort(first.Addr().String()).Port()
	port := strconv.Itoa(int(b.Port))
	b.serveTCP(first)
	for _, at := range []string{"[::1]:" + port, "127.0.0.2:" + port} {
		if l, err := net.Listen("tcp", at); err == nil { // a host without IPv6 fails the cases that need it
			b.serveTCP(l)
		}
	}
	if b.echo.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:"+port))); err != nil {
		b.Fatalf("listen: %v", err)
	}
	b.Cleanup(func() { _ = b.echo.udp.Close() })
	go b.echo.datagrams()
}

func (b *Bench) serveTCP(l net.Listener) {
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.echo.mu.Lock()
			b.echo.dials++
			b.echo.mu.Unlock()
			go b.echo.echo(c)
		}
	}()
}

func (s *servers) echo(c net.Conn) {
	defer func() { _ = c.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		s.keep(buf[:n])
		if _, failed := c.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}

func (s *servers) datagrams() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		s.keep(buf[:n])
		s.mu.Lock()
		s.from = from
		s.mu.Unlock()
		_, _ = s.udp.WriteToUDPAddrPort(buf[:n], from)
	}
}

func (s *servers) keep(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard.Write(b)
}

// Dials is how many connections came.
func (s *servers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

func (s *servers) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Contains(s.heard.Bytes(), []byte(text))
}

func (s *servers) last() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from
}

// await looks until holds is true, at most so long.
func await(long time.Duration, holds func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(long); !holds(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// readAll reads what comes until the end or the deadline.
func readAll(r io.Reader) string {
	all, _ := io.ReadAll(r)
	return string(all)
}
