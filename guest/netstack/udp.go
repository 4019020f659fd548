package netstack

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"skep.dev/skep/guest/channel"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/tunnel"
)

// Bounds of UDP (B150, G54).
const (
	udpIdle     = 2 * time.Minute
	dnsIdle     = 10 * time.Second
	refusedFor  = 10 * time.Second // ICMP without a new request
	MaxUDP      = 256
	maxRefusals = 4096
)

// takeUDP handles the first datagram of a pair of addresses. False is an ICMP port
// unreachable. It runs where packets are read, and must not wait.
func (s *Stack) takeUDP(r *udp.ForwarderRequest) bool {
	id := r.ID()
	dst := netip.AddrPortFrom(addrOf(id.LocalAddress), id.LocalPort)
	src := netip.AddrPortFrom(addrOf(id.RemoteAddress), id.RemotePort)
	dns := dst.Port() == dnsPort
	if !dns && (!s.udp || s.refused.has(src, dst) || !s.refused.enter()) {
		return false
	}
	var queue waiter.Queue
	end, err := r.CreateEndpoint(&queue)
	if err != nil {
		if !dns {
			s.refused.leave()
		}
		return false
	}
	agent := gonet.NewUDPConn(&queue, end)
	if dns {
		go s.answer(agent)
		return true
	}
	go func() {
		defer s.refused.leave()
		s.carryUDP(agent, src, dst)
	}()
	return true
}

// answer is virtual DNS, whatever address was asked (B54).
func (s *Stack) answer(agent *gonet.UDPConn) {
	defer func() { _ = agent.Close() }()
	buf := make([]byte, 4096)
	for {
		if agent.SetReadDeadline(time.Now().Add(dnsIdle)) != nil {
			return
		}
		n, err := agent.Read(buf)
		if err != nil {
			return
		}
		if reply := s.resolver.Answer(context.Background(), buf[:n]); reply != nil {
			if _, err := agent.Write(reply); err != nil {
				return
			}
		}
	}
}

// carryUDP is one connect-udp tunnel for one pair of addresses.
func (s *Stack) carryUDP(agent *gonet.UDPConn, src, dst netip.AddrPort) {
	defer func() { _ = agent.Close() }()
	target, release := s.target(dst, flow.UDP)
	defer release()
	up, err := s.boundary.Open(context.Background(), target)
	if err != nil {
		s.refused.add(src, dst)
		s.unreachable(src, dst)
		return
	}
	defer func() { _ = up.Close() }()
	last := newIdle(udpIdle, func() { _ = up.Close(); _ = agent.Close() })
	defer last.stop()
	var wait sync.WaitGroup
	wait.Go(func() {
		defer func() { _ = agent.Close() }()
		down(agent, up, last)
	})
	wait.Go(func() {
		defer func() { _ = up.Close() }()
		upward(agent, up, last)
	})
	wait.Wait()
}

func down(agent *gonet.UDPConn, up *channel.Conn, last *idle) {
	for d := tunnel.NewDatagrams(up.Reader()); ; last.touch() {
		payload, err := d.Next()
		if err != nil {
			return
		}
		if _, err := agent.Write(payload); err != nil {
			return
		}
	}
}

func upward(agent *gonet.UDPConn, up *channel.Conn, last *idle) {
	buf, capsule := make([]byte, tunnel.MaxPayload), []byte(nil)
	for ; ; last.touch() {
		n, err := agent.Read(buf)
		if err != nil {
			return
		}
		capsule = tunnel.AppendDatagram(capsule[:0], buf[:n])
		if _, err := up.Write(capsule); err != nil {
			return
		}
	}
}

// idle ends a flow that nobody uses.
type idle struct {
	after time.Duration
	timer *time.Timer
}

func newIdle(after time.Duration, end func()) *idle {
	return &idle{after: after, timer: time.AfterFunc(after, end)}
}

func (i *idle) touch() { i.timer.Reset(i.after) }
func (i *idle) stop()  { i.timer.Stop() }

// refusals remembers what the boundary has just refused, and counts open flows.
type refusals struct {
	mu    sync.Mutex
	until map[[2]netip.AddrPort]time.Time
	open  int
}

func (r *refusals) has(src, dst netip.AddrPort) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := [2]netip.AddrPort{src, dst}
	until, ok := r.until[key]
	if ok && time.Now().After(until) {
		delete(r.until, key)
		ok = false
	}
	return ok
}

func (r *refusals) add(src, dst netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.until == nil {
		r.until = map[[2]netip.AddrPort]time.Time{}
	}
	if len(r.until) >= maxRefusals {
		for key, until := range r.until {
			if now.After(until) || len(r.until) >= maxRefusals {
				delete(r.until, key)
			}
		}
	}
	r.until[[2]netip.AddrPort{src, dst}] = now.Add(refusedFor)
}

func (r *refusals) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open >= MaxUDP {
		return false
	}
	r.open++
	return true
}

func (r *refusals) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
}
