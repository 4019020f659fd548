package box

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/box/datagrams"
	"skep.dev/skep/internal/box/pause"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/route"
)

// server accepts what the cell opens and takes it to the gate.
type server struct {
	sockets *sockets
	gate    *boundary.Gate
	table   *route.Table
	dns     *route.Resolver
	udp     *datagrams.Server
	pause   *pause.Pause

	flows sync.WaitGroup
}

// run serves every socket until the listeners are closed or another box has them, which
// is nil, or one fails. ctx is the life of the flows.
func (s *server) run(ctx context.Context) error {
	clients, hangUp := context.WithCancel(ctx)
	defer hangUp()
	errs := make(chan error)
	n := 0
	serve := func(on pause.Socket, f func() error) {
		n++
		go func() { errs <- s.pause.Loop(on, f) }()
	}
	for _, l := range s.sockets.tcp {
		serve(listener{l}, func() error { return s.accept(ctx, l) })
	}
	for _, c := range s.sockets.udp {
		serve(c, func() error { return s.udp.Serve(ctx, c) })
	}
	for _, c := range s.sockets.dnsUDP {
		serve(c, func() error { return s.dns.ServeUDP(ctx, c) })
	}
	for _, l := range s.sockets.dnsTCP {
		serve(listener{l}, func() error { return s.dns.ServeTCP(clients, l) })
	}
	var all []error
	for range n {
		if err := <-errs; err != nil {
			all = append(all, err)
			s.sockets.close() // one listener alone must not stay
		}
	}
	if s.pause.Over() {
		hangUp() // whoever asks again asks the other box
	}
	s.flows.Wait()
	s.udp.Wait()
	return errors.Join(all...)
}

// numbers is a BoxNumbers.
func (s *server) numbers() (m writer) {
	for i, n := range s.dns.Answers() {
		m.number(1+i, n)
	}
	v4, v6 := s.table.Len()
	m.number(5, uint64(v4))
	m.number(6, uint64(v6))
	return m
}

func (s *server) accept(ctx context.Context, l *net.TCPListener) error {
	err := route.Accept(l.AcceptTCP, func(c *net.TCPConn) {
		s.flows.Go(func() { s.flow(ctx, c) })
	})
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("accept from the cell: %w", err)
}

// listener is one that reads nothing after its deadline.
type listener struct{ *net.TCPListener }

// SetReadDeadline implements pause.Socket.
func (l listener) SetReadDeadline(t time.Time) error { return l.SetDeadline(t) }

// flow names one connection and takes it through the gate (B12, B16).
func (s *server) flow(ctx context.Context, c *net.TCPConn) {
	dst, err := route.Original(c)
	if err != nil {
		boundary.Reset(c)
		s.gate.NoOriginal(ctx, flow.TCP)
		return
	}
	q := flow.Request{ID: flow.NewID(), Conn: flow.NewID(), Direction: flow.Out, Wire: flow.Native, Transport: flow.TCP, Port: dst.Port(), Count: 1}
	host, release, ok := s.table.Hold(dst.Addr())
	defer release()
	if ok {
		q.Name, q.Synthetic = host, dst.Addr()
	} else {
		q.Addr = dst.Addr()
	}
	s.gate.Serve(ctx, q, boundary.Connected{Conn: c})
}
