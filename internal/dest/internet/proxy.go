package internet

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/dest/internet/splicer"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/tunnel"
)

// openThrough opens a flow by way of the operator's proxy, which is asked for a checked
// address, or where it must be for the name (B181).
func (d *Dest) openThrough(ctx context.Context, p boundary.Permit, x *policy.Proxy, kept []netip.Addr, dropped int) (boundary.Upstream, error) {
	q := p.Request()
	ctx, cancel := context.WithTimeout(ctx, boundary.DialAllTime)
	defer cancel()
	if len(kept) == 0 { // by name
		c, err := d.tunnel(ctx, x, net.JoinHostPort(q.Name, strconv.Itoa(int(q.Port))))
		if err != nil {
			return nil, &boundary.Failure{Reason: flow.ProxyFailed, Err: err}
		}
		return &upstream{conn: c, dest: d, permit: p}, nil
	}
	var errs []error
	for _, a := range kept {
		at := netip.AddrPortFrom(a, q.Port)
		c, err := d.tunnel(ctx, x, at.String())
		if err == nil {
			return &upstream{conn: c, dest: d, permit: p, dropped: dropped, asked: at}, nil
		}
		errs = append(errs, err)
	}
	return nil, &boundary.Failure{Reason: flow.ProxyFailed, Dropped: dropped, Err: errors.Join(errs...)}
}

// tunnel asks the proxy for one destination. What it says beside a success goes nowhere.
func (d *Dest) tunnel(ctx context.Context, x *policy.Proxy, authority string) (splicer.Stream, error) {
	tcp, err := d.reach(ctx, x)
	if err != nil {
		return nil, err
	}
	var c net.Conn = tcp
	if x.TLS {
		if c, err = overTLS(ctx, tcp, x); err != nil {
			_ = tcp.Close()
			return nil, fmt.Errorf("speak TLS to the proxy: %w", err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	head := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n"
	if x.Auth != "" {
		head += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(x.Auth)) + "\r\n"
	}
	_, err = io.WriteString(c, head+"\r\n")
	if err == nil {
		err = tunnel.ReadAnswer(bufio.NewReader(single{c}), flow.TCP)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("ask the proxy for %s: %w", authority, err)
	}
	if !x.TLS {
		return tcp, nil
	}
	return bridge(c)
}

// single reads one byte at a time, so that nothing behind the answer is taken.
type single struct{ io.Reader }

func (s single) Read(b []byte) (int, error) { return s.Reader.Read(b[:min(1, len(b))]) }

// reach dials the proxy, whose address nobody but the operator has chosen.
func (d *Dest) reach(ctx context.Context, x *policy.Proxy) (*net.TCPConn, error) {
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(x.Host); err == nil {
		addrs = append(addrs, a)
	} else if addrs, err = d.current().lookup(ctx, x.Host); err != nil {
		return nil, fmt.Errorf("find the proxy: %w", err)
	}
	c, err := race(ctx, addrs, x.Port)
	if err != nil {
		return nil, fmt.Errorf("reach the proxy: %w", err)
	}
	return c, nil
}

func overTLS(ctx context.Context, tcp *net.TCPConn, x *policy.Proxy) (net.Conn, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(x.Roots) {
		return nil, errors.New("no certificate vouches for it")
	}
	c := tls.Client(tcp, &tls.Config{ServerName: x.Host, RootCAs: roots, MinVersion: tls.VersionTLS12})
	return c, c.HandshakeContext(ctx)
}

// bridge makes of a connection that no kernel can splice one that it can: what a relay
// writes into the one end goes through TLS from the other.
func bridge(c net.Conn) (splicer.Stream, error) {
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("carry TLS to the proxy: %w", err)
	}
	near, err1 := net.FileConn(ours)
	far, err2 := net.FileConn(theirs)
	sys.CloseAll([]*os.File{ours, theirs})
	stream, ok := near.(*net.UnixConn)
	inner, is := far.(*net.UnixConn)
	if err := errors.Join(err1, err2); err != nil || !ok || !is {
		_ = c.Close()
		return nil, fmt.Errorf("carry TLS to the proxy: %w", err)
	}
	go func() {
		_, _ = io.Copy(c, inner)
		if t, ok := c.(*tls.Conn); ok {
			_ = t.CloseWrite()
		}
		_ = c.SetReadDeadline(time.Now().Add(boundary.IdleTCP)) // whether the flow has ended or half of it is not seen here
	}()
	go func() {
		_, _ = io.Copy(inner, c)
		_ = inner.Close() // both ways: half of a TLS connection carries nothing
		_ = c.Close()
	}()
	return stream, nil
}
