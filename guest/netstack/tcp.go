package netstack

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"skep.dev/skep/guest/channel"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/name"
	"skep.dev/skep/internal/tunnel"
)

const dnsPort = 53

// takeTCP handles one SYN; its retransmissions join it (G51).
func (s *Stack) takeTCP(r *tcp.ForwarderRequest) {
	if s.attempts.Add(1) > MaxAttempts {
		s.attempts.Add(-1)
		r.Complete(true)
		return
	}
	dst := netip.AddrPortFrom(addrOf(r.ID().LocalAddress), r.ID().LocalPort)
	if dst.Port() == dnsPort && isResolver(dst.Addr()) {
		s.attempts.Add(-1)
		if agent := accept(r); agent != nil {
			s.resolver.ServeClient(context.Background(), agent)
			_ = agent.Close()
		}
		return
	}
	target, release := s.target(dst, flow.TCP)
	defer release()
	up, err := s.boundary.Open(context.Background(), target)
	s.attempts.Add(-1)
	if err != nil {
		r.Complete(true)
		return
	}
	agent := accept(r)
	if agent == nil {
		_ = up.Close()
		return
	}
	relay(agent, up)
}

func isResolver(a netip.Addr) bool { return a == name.Resolver4() || a == name.Resolver6() }

// target names a destination. release is called when its flow is over.
func (s *Stack) target(dst netip.AddrPort, transport flow.Transport) (tunnel.Target, func()) {
	t := tunnel.Target{Transport: transport, Port: dst.Port()}
	host, release, ok := s.names.Hold(dst.Addr())
	if ok {
		t.Name = host
	} else {
		t.Addr = dst.Addr()
	}
	return t, release
}

// conn is the agent's side of a flow.
type conn struct {
	*gonet.TCPConn
	end tcpip.Endpoint
}

// abort resets.
func (c *conn) abort() { c.end.Abort() }

// accept finishes the handshake. nil says that the agent has gone.
func accept(r *tcp.ForwarderRequest) *conn {
	var queue waiter.Queue
	end, err := r.CreateEndpoint(&queue)
	if err != nil {
		r.Complete(true)
		return nil
	}
	r.Complete(false)
	return &conn{gonet.NewTCPConn(&queue, end), end}
}

// relay carries both directions: an end of one is an end of one, an error of one is a
// reset of both (G53). A boundary that is gone before the agent has ended is an error, too:
// a Unix socket knows no other reset.
func relay(agent *conn, up *channel.Conn) {
	var wait sync.WaitGroup
	var ended atomic.Bool // by the agent
	broken := func(err error) {
		if err != nil && !errors.Is(err, io.EOF) {
			agent.abort()
			_ = up.Close()
		}
	}
	wait.Go(func() {
		_, err := copyTo(up, agent)
		ended.Store(err == nil)
		broken(errors.Join(err, up.CloseWrite()))
	})
	wait.Go(func() {
		_, err := copyTo(agent, up)
		if err == nil && up.Gone() && !ended.Load() {
			err = io.ErrUnexpectedEOF
		}
		if err == nil { // an end that is told before a reset would be taken for all there was
			err = agent.CloseWrite()
		}
		broken(err)
	})
	wait.Wait()
	_ = agent.Close()
	_ = up.Close()
}

// copySize is what one read takes: large enough for one segment of the device.
const copySize = 64 << 10

// copyTo reads a whole segment at a time.
func copyTo(dst io.Writer, src io.Reader) (int64, error) {
	return io.CopyBuffer(onlyWriter{dst}, onlyReader{src}, make([]byte, copySize))
}

// onlyWriter and onlyReader hide what would make io.Copy choose another way.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)
