package testlab

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"skep.dev/skep/internal/model/script"
)

// keptBytes is how much of what a connection sent is kept to be looked at.
const keptBytes = 4096

// Connection is one TCP connection that a server accepted.
type Connection struct {
	To, From netip.AddrPort
	Received int    // bytes from the one who connected
	First    []byte // the first of them
	Closed   bool
}

// Request is one HTTP request that a server got.
type Request struct {
	To         netip.AddrPort
	Method     string
	Host       string
	Path       string
	Header     http.Header
	ServerName string // of TLS, empty without
}

// Datagram is one UDP payload that arrived.
type Datagram struct {
	To, From netip.AddrPort
	Payload  []byte
}

// Connections is every accepted connection so far, but the name server's.
func (l *Lab) Connections() []Connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Connection, 0, len(l.connections))
	for _, c := range l.connections {
		seen := *c
		seen.First = bytes.Clone(c.First)
		out = append(out, seen)
	}
	return out
}

// Reached is the connections to one address and port.
func (l *Lab) Reached(at string) []Connection {
	var out []Connection
	for _, c := range l.Connections() {
		if c.To.String() == at {
			out = append(out, c)
		}
	}
	return out
}

// Requests is every HTTP request so far.
func (l *Lab) Requests() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Request(nil), l.requests...)
}

// Datagrams is every datagram so far, but the name server's.
func (l *Lab) Datagrams() []Datagram {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Datagram(nil), l.datagrams...)
}

// Serve runs a server on ADDRESS:PORT (port 0: any, see what it returns) with one
// call of handle for each connection, which is closed when handle returns.
func (l *Lab) Serve(at string, handle func(net.Conn)) netip.AddrPort {
	l.t.Helper()
	ln, where := l.listen(at)
	go acceptEach(&recorder{ln, l}, func(c net.Conn) {
		defer func() { _ = c.Close() }()
		handle(c)
	})
	return where
}

// Echo returns whatever it gets.
func (l *Lab) Echo(at string) netip.AddrPort {
	l.t.Helper()
	return l.Serve(at, func(c net.Conn) {
		_, _ = io.Copy(c, c)
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	})
}

// Quiet is an echo that keeps no record: for very many connections.
func (l *Lab) Quiet(at string) netip.AddrPort {
	l.t.Helper()
	ln, where := l.listen(at)
	go acceptEach(ln, func(c net.Conn) {
		defer func() { _ = c.Close() }()
		_, _ = io.Copy(c, c)
	})
	return where
}

// Greet is a server that speaks first, and then listens until the other side ends.
func (l *Lab) Greet(at, greeting string) netip.AddrPort {
	l.t.Helper()
	return l.Serve(at, func(c net.Conn) {
		_, _ = io.WriteString(c, greeting)
		_, _ = io.Copy(io.Discard, c)
	})
}

// HTTP serves plain HTTP. A nil handler answers 200 with the text "hello".
func (l *Lab) HTTP(at string, handler http.Handler) netip.AddrPort {
	l.t.Helper()
	ln, where := l.listen(at)
	l.serveHTTP(&recorder{ln, l}, where, handler)
	return where
}

// HTTPS serves HTTP over TLS with a certificate of the lab's own authority for
// whichever name the client says, or for names, if given.
func (l *Lab) HTTPS(at string, handler http.Handler, names ...string) netip.AddrPort {
	l.t.Helper()
	ln, where := l.listen(at)
	config := l.authority().config(names)
	l.serveHTTP(tls.NewListener(&recorder{ln, l}, config), where, handler)
	return where
}

// HTTP2 is HTTPS for clients of HTTP/2, and for others.
func (l *Lab) HTTP2(at string, handler http.Handler) netip.AddrPort {
	l.t.Helper()
	ln, where := l.listen(at)
	config := l.authority().config(nil)
	config.NextProtos = []string{"h2", "http/1.1"}
	l.serveHTTP(tls.NewListener(&recorder{ln, l}, config), where, handler)
	return where
}

func (l *Lab) serveHTTP(ln net.Listener, where netip.AddrPort, handler http.Handler) {
	if handler == nil {
		handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	}
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen := Request{To: where, Method: r.Method, Host: r.Host, Path: r.URL.Path, Header: r.Header.Clone()}
			if r.TLS != nil {
				seen.ServerName = r.TLS.ServerName
			}
			l.record(func() { l.requests = append(l.requests, seen) })
			handler.ServeHTTP(w, r)
		}),
		// A client that refuses our certificate is what some tests are about.
		ErrorLog: discard(),
	}
	l.t.Cleanup(func() { _ = srv.Close() })
	go func() { _ = srv.Serve(ln) }()
}

// Model serves the scripted model of file on an address.
func (l *Lab) Model(at, file string) netip.AddrPort {
	l.t.Helper()
	ln, where := l.listen(at)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- script.Serve(ctx, &recorder{ln, l}, file) }()
	l.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			l.t.Errorf("scripted model: %v", err)
		}
	})
	return where
}

// UDPEcho returns each datagram to its sender.
func (l *Lab) UDPEcho(at string) netip.AddrPort {
	l.t.Helper()
	addr, err := netip.ParseAddrPort(at)
	if err != nil {
		l.t.Fatal(err)
	}
	u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = u.Close() })
	where := u.LocalAddr().(*net.UDPAddr).AddrPort()
	go func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := u.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			l.record(func() { l.datagrams = append(l.datagrams, Datagram{where, from, bytes.Clone(buf[:n])}) })
			_, _ = u.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	return where
}

func acceptEach(ln net.Listener, handle func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go handle(c)
	}
}

// recorder is a listener whose connections are in the lab's record.
type recorder struct {
	net.Listener
	lab *Lab
}

func (r *recorder) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	seen := &Connection{
		To:   c.LocalAddr().(*net.TCPAddr).AddrPort(),
		From: c.RemoteAddr().(*net.TCPAddr).AddrPort(),
	}
	r.lab.record(func() { r.lab.connections = append(r.lab.connections, seen) })
	return &recorded{TCPConn: c.(*net.TCPConn), lab: r.lab, seen: seen}, nil
}

// recorded notes what was received. It hides the shortcuts of TCPConn, by which
// bytes would pass unseen.
type recorded struct {
	*net.TCPConn
	lab  *Lab
	seen *Connection
	once sync.Once
}

func (c *recorded) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if n > 0 {
		c.lab.record(func() {
			c.seen.Received += n
			c.seen.First = append(c.seen.First, p[:min(n, keptBytes-len(c.seen.First))]...)
		})
	}
	return n, err
}

// WriteTo keeps io.Copy from reading the socket past Read.
func (c *recorded) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, readOnly{c}) }

type readOnly struct{ c *recorded }

func (r readOnly) Read(p []byte) (int, error) { return r.c.Read(p) }

func (c *recorded) Close() error {
	c.once.Do(func() { c.lab.record(func() { c.seen.Closed = true }) })
	return c.TCPConn.Close()
}
