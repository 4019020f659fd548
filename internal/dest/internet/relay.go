package internet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
)

// upstream is one dialed connection, waiting for its agent.
type upstream struct {
	conn    *net.TCPConn
	permit  boundary.Permit
	dropped int
	idle    time.Duration // 0: the limit of B150
}

// Address is what was dialed.
func (u *upstream) Address() netip.AddrPort {
	a, err := netip.ParseAddrPort(u.conn.RemoteAddr().String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Dropped is how many resolved addresses were not kept.
func (u *upstream) Dropped() int { return u.dropped }

// relay is one flow in both directions.
type relay struct {
	agent, up *net.TCPConn
	permit    boundary.Permit
	idle      time.Duration
	ctx       context.Context

	sent, received atomic.Uint64
	last           atomic.Int64 // when a byte last moved, Unix nanoseconds
	answering      atomic.Bool  // the agent gets an answer of ours: leave its end open
	inner          flow.Inner
	downDone       chan struct{}
	downErr        error // set before downDone is closed
}

// errIdle says that nothing moved for too long; errRefused that the inner check
// ended the flow and the agent has been answered.
var (
	errIdle    = errors.New("nothing moved for too long")
	errRefused = errors.New("refused by the inner check")
)

// Carry relays until both directions have ended (B20).
func (u *upstream) Carry(ctx context.Context, agent net.Conn) boundary.End {
	c, ok := agent.(*net.TCPConn)
	if !ok {
		boundary.Reset(agent)
		boundary.Reset(u.conn)
		return boundary.End{Reason: flow.DialFailed}
	}
	r := &relay{agent: c, up: u.conn, permit: u.permit, idle: u.idle, ctx: ctx, downDone: make(chan struct{})}
	if r.idle == 0 {
		r.idle = boundary.IdleTCP
	}
	r.touch()
	stop := context.AfterFunc(ctx, r.reset)
	defer stop()
	why := r.run()
	_ = r.agent.Close()
	_ = r.up.Close()
	return boundary.End{Up: r.sent.Load(), Down: r.received.Load(), Reason: why, Inner: r.inner}
}

// run is the whole life of a flow: check what the agent says, then relay both
// ways. It returns the reason of the end, None for an ordinary one.
func (r *relay) run() flow.Reason {
	var why flow.Reason
	var err error
	switch r.permit.Inspect() {
	case policy.WantHTTP:
		why, err = r.serveHTTP()
	case policy.WantFirst:
		r.startDown(nil)
		if why, err = r.checkFirst(); err == nil {
			err = r.pumpUp()
		}
	default:
		r.startDown(nil)
		err = r.pumpUp()
	}
	if err != nil && why == flow.None {
		r.reset()
	}
	<-r.downDone
	switch {
	case why != flow.None:
		return why
	case r.ctx.Err() != nil:
		return flow.Revoked
	case errors.Is(err, errIdle) || errors.Is(r.downErr, errIdle):
		return flow.IdleTimeout
	}
	return flow.None
}

// startDown relays from the server to the agent beside the caller, first what was
// read ahead.
func (r *relay) startDown(ahead []byte) {
	go func() {
		defer close(r.downDone)
		n, err := r.agent.Write(ahead)
		r.received.Add(uint64(n))
		if r.downErr = err; err == nil {
			r.downErr = r.pump(r.agent, r.up, &r.received)
		}
		switch {
		case r.answering.Load():
		case r.downErr != nil:
			r.reset()
		default:
			_ = r.agent.CloseWrite()
		}
	}()
}

// pumpUp relays from the agent to the server and passes on its end of file.
func (r *relay) pumpUp() error {
	if err := r.pump(r.up, r.agent, &r.sent); err != nil {
		return err
	}
	_ = r.up.CloseWrite()
	return nil
}

// pieceSize bounds one splice, so that counters and deadlines stay fresh.
const pieceSize = 64 << 20

// pump moves bytes to the end of file. Between two TCP connections the kernel
// moves them (splice).
func (r *relay) pump(dst, src *net.TCPConn, count *atomic.Uint64) error {
	for {
		if err := src.SetReadDeadline(time.Now().Add(r.idle / 4)); err != nil {
			return err
		}
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		n, err := io.Copy(dst, &io.LimitedReader{R: src, N: pieceSize})
		count.Add(uint64(n))
		if n > 0 {
			r.touch()
		}
		switch {
		case err == nil && n < pieceSize:
			return nil
		case err == nil:
		case isTimeout(err):
			if r.isIdle() {
				return errIdle
			}
		default:
			return err
		}
	}
}

// isIdle: a splice reports its bytes when it returns, at least every quarter of
// the bound, so that both directions are known to that grain.
func (r *relay) isIdle() bool { return time.Since(time.Unix(0, r.last.Load())) >= r.idle }

func (r *relay) touch() { r.last.Store(time.Now().UnixNano()) }

// reset ends both connections at once, so that each peer sees a reset.
func (r *relay) reset() {
	boundary.Reset(r.agent)
	boundary.Reset(r.up)
}
