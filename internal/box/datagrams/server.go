package datagrams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
)

// What may wait in a box (B150).
const (
	MaxSources = 2 * boundary.OpenUDP // at once: flows, and what is on its way to being refused
	maxWaiting = 64                   // payloads of one flow that nobody has read
	maxBytes   = 16 << 20             // of all
	maxPayload = 65_527
	askTime    = time.Second // for conntrack
)

// Kernel is the conntrack of the cell's namespace.
type Kernel interface {
	// Origin is where datagrams from source were going.
	Origin(ctx context.Context, source netip.AddrPort) (netip.AddrPort, error)
	// Forget has the kernel judge the next datagram from source as a first one.
	Forget(ctx context.Context, source netip.AddrPort) error
}

// Server is the UDP of one cell. Its fields are set before Serve.
type Server struct {
	Gate   *boundary.Gate
	Table  *route.Table
	Kernel Kernel

	once    sync.Once
	places  chan struct{}
	waiting atomic.Int64 // bytes that nobody has read

	mu      sync.Mutex
	sources map[netip.AddrPort]*source
	asking  int // for where a first datagram was going
	asked   *sync.Cond
	flows   sync.WaitGroup
}

func (s *Server) begin() {
	s.once.Do(func() {
		s.places, s.sources, s.asked = make(chan struct{}, MaxSources), map[netip.AddrPort]*source{}, sync.NewCond(&s.mu)
	})
}

// Serve reads socket until it is closed, which is nil, or an error; its deadline is one.
// ctx is the life of the flows. Sockets of both families may be served at once.
func (s *Server) Serve(ctx context.Context, socket *net.UDPConn) error {
	s.begin()
	buf := make([]byte, maxPayload)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.answered() // whoever pauses us has the kernel answer nobody
			return err
		case err != nil:
			return fmt.Errorf("read datagrams of the cell: %w", err)
		}
		s.take(ctx, socket, netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port()), buf[:n])
	}
}

// take gives a payload to the flow of its source, or begins one. Where there are too many
// sources it waits: meanwhile the kernel drops what it has no room for.
func (s *Server) take(ctx context.Context, socket *net.UDPConn, from netip.AddrPort, payload []byte) {
	if s.give(from, payload) {
		return
	}
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return
	}
	one := &source{socket: socket, from: from, server: s, in: make(chan []byte, maxWaiting), over: make(chan struct{})}
	one.put(payload)
	s.mu.Lock()
	s.sources[from] = one
	s.asking++
	s.mu.Unlock()
	s.flows.Go(func() {
		defer func() { <-s.places }()
		s.serve(ctx, one)
	})
}

func (s *Server) give(from netip.AddrPort, payload []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sources[from]
	if one == nil {
		return false
	}
	one.put(payload)
	return true
}

// serve is one source from its first datagram until it is silent or refused.
func (s *Server) serve(ctx context.Context, one *source) {
	for s.flow(ctx, one); s.again(ctx, one); s.flow(ctx, one) {
	}
	// It stays in the table meanwhile: what comes now the kernel has let pass for the flow
	// that is over.
	ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	_ = s.Kernel.Forget(ask, one.from) // a warden that is gone has no kernel to ask
	s.mu.Lock()
	delete(s.sources, one.from)
	s.mu.Unlock()
	one.drain()
}

// again makes one ready for another flow where a datagram came while the last one ended.
func (s *Server) again(ctx context.Context, one *source) bool {
	if one.refused || len(one.in) == 0 || ctx.Err() != nil {
		return false
	}
	one.end, one.over = sync.Once{}, make(chan struct{})
	s.ask(1)
	return true
}

// flow takes one Request through the gate.
func (s *Server) flow(ctx context.Context, one *source) {
	ask, cancel := context.WithTimeout(ctx, askTime)
	to, err := s.Kernel.Origin(ask, one.from)
	cancel()
	s.ask(-1)
	if err != nil || !route.Foreign(to) {
		one.refused = true
		s.Gate.NoOriginal(ctx, flow.UDP)
		return
	}
	q := flow.Request{ID: flow.NewID(), Conn: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.UDP, Port: to.Port(), Count: 1}
	host, release, ok := s.Table.Hold(to.Addr())
	defer release()
	if ok {
		q.Name, q.Synthetic = host, to.Addr()
	} else {
		q.Addr = to.Addr()
	}
	s.Gate.Serve(ctx, q, one)
}

func (s *Server) ask(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking += n
	s.asked.Broadcast()
}

// answered waits until nobody asks the kernel.
func (s *Server) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.asking > 0 {
		s.asked.Wait()
	}
}

// Wait returns when every flow is over.
func (s *Server) Wait() { s.flows.Wait() }
