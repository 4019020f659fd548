package route

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Limits of virtual DNS (B52, B150).
const (
	DNSNames   = 65536 // in each family
	DNSQueries = 500   // a second
	DNSClients = 32    // over TCP at once; more are refused
)

const (
	dnsPending = 128              // UDP queries that wait for the kernel at once
	dnsIdle    = 10 * time.Second // of a TCP client
)

// ServeUDP answers queries until the socket is closed, has passed its deadline, or ctx
// ends; what it has taken by then it has answered. Replies leave by the same socket,
// which must be bound to one address: a wildcard socket would answer from the wrong one.
func (r *Resolver) ServeUDP(ctx context.Context, c net.PacketConn) error {
	pending := make(chan struct{}, dnsPending)
	defer func() {
		for range dnsPending {
			pending <- struct{}{}
		}
	}()
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return served(ctx, "dns udp socket", err)
		}
		query := append([]byte(nil), buf[:n]...)
		pending <- struct{}{}
		go func() {
			defer func() { <-pending }()
			if reply := r.Answer(ctx, query); reply != nil {
				// A client that is gone is not our failure.
				_, _ = c.WriteTo(reply, from)
			}
		}()
	}
}

// ServeTCP answers queries with a two-byte length (RFC 1035, 4.2.2).
func (r *Resolver) ServeTCP(ctx context.Context, l net.Listener) error {
	clients := make(chan struct{}, DNSClients)
	err := Accept(l.Accept, func(c net.Conn) {
		select {
		case clients <- struct{}{}:
			go func() {
				defer func() { _ = c.Close(); <-clients }()
				r.ServeClient(ctx, c)
			}()
		default:
			_ = c.Close()
		}
	})
	return served(ctx, "dns tcp socket", err)
}

// ServeClient answers one TCP client until it is idle or closed; closing is the caller's.
func (r *Resolver) ServeClient(ctx context.Context, c net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	for {
		if c.SetDeadline(time.Now().Add(dnsIdle)) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		reply := r.Answer(ctx, query)
		if reply == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

func served(ctx context.Context, what string, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", what, err)
}
