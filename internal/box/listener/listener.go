package listener

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/tunnel"
)

// HeadTime is how long a head may take (B150).
const HeadTime = 15 * time.Second

// Listener serves the tunnels of one cell. Its fields are set before Serve.
type Listener struct {
	Gate *boundary.Gate
	UDP  bool          // connect-udp is served (B43)
	Head time.Duration // for a head; 0: HeadTime

	open  atomic.Int64 // connections
	flows sync.WaitGroup
}

// Serve takes what from accepts to the gate, and returns when from was closed and every
// flow of it is over. ctx is the life of the flows: its end ends them.
func (l *Listener) Serve(ctx context.Context, from net.Listener) error {
	defer l.flows.Wait()
	err := route.Accept(from.Accept, func(c net.Conn) {
		n := l.open.Add(1)
		l.flows.Go(func() {
			defer l.open.Add(-1)
			if n > int64(l.Gate.Flows) {
				l.full(ctx, c)
				return
			}
			l.tunnel(ctx, c)
		})
	})
	if err != nil {
		return fmt.Errorf("accept a tunnel: %w", err)
	}
	return nil
}

// full refuses a connection for which there is no room, before its head is read (B42).
func (l *Listener) full(ctx context.Context, c net.Conn) {
	refuse(c, flow.Busy, "")
	l.Gate.Reject(ctx, request(c, tunnel.Target{}), flow.Busy)
}

// tunnel reads one head and takes its request through the gate.
func (l *Listener) tunnel(ctx context.Context, c net.Conn) {
	target, err := l.head(ctx, c)
	q := request(c, target)
	var fault *tunnel.HeadError
	switch {
	case errors.As(err, &fault):
		refuse(c, fault.Reason, "")
		l.Gate.Reject(ctx, q, fault.Reason)
	case err != nil:
		_ = c.Close() // nothing was asked: somebody looked whether we are there, or broke off
	default:
		l.Gate.Serve(ctx, q, arrival{c, target.Transport})
	}
}

// head reads a head within its time, which the end of the listener cuts short.
func (l *Listener) head(ctx context.Context, c net.Conn) (tunnel.Target, error) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return tunnel.Target{}, errors.New("a tunnel without a socket")
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return tunnel.Target{}, err
	}
	within := l.Head
	if within == 0 {
		within = HeadTime
	}
	_ = c.SetReadDeadline(time.Now().Add(within))
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	target, err := tunnel.ReadHead(bufio.NewReader(&headReader{socket: raw}), l.UDP)
	_ = c.SetReadDeadline(time.Time{})
	return target, err
}

// request is the attempt that a head asks for; what could not be read is left out.
func request(c net.Conn, t tunnel.Target) flow.Request {
	transport := t.Transport
	if transport == 0 {
		transport = flow.TCP
	}
	return flow.Request{
		ID: flow.NewID(), Conn: flow.NewID(), Peer: peer(c), Direction: flow.Out, Wire: flow.H1, Transport: transport,
		Name: t.Name, Addr: t.Addr.WithZone(""), Port: t.Port, Count: 1,
	}
}

// peer is who connected, by the kernel's word, for the record only (B2).
func peer(c net.Conn) string {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ""
	}
	uid, err := sys.PeerUID(u)
	if err != nil {
		return ""
	}
	return "uid:" + strconv.FormatUint(uint64(uid), 10)
}
