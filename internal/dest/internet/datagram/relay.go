package datagram

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"skep.dev/skep/internal/boundary"
)

// MaxPayload is the largest payload of UDP over IPv6, in bytes.
const MaxPayload = 65_527

// ErrIdle says that nothing moved for too long.
var ErrIdle = errors.New("no datagram for too long")

// Flow is one agent and the socket that is connected to its peer. Both are closed when
// the flow ends.
type Flow struct {
	Agent, Peer net.Conn
	Bytes       *boundary.Bytes // what may be carried
	Idle        time.Duration
	Room        *Room // shared by the flows of a cell

	up, down atomic.Uint64
	last     atomic.Int64 // when a payload last moved, Unix nanoseconds
	queue    *queue
	timer    *time.Timer

	mu  sync.Mutex
	why error // the first
}

// Relay returns when the flow is over: nil when the agent ended it.
func (f *Flow) Relay(ctx context.Context) error {
	f.queue = newQueue(f.Room)
	f.touch()
	f.mu.Lock()
	f.timer = time.AfterFunc(f.Idle, f.check)
	f.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { f.end(ctx.Err()) })
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { f.end(f.toPeer(ctx)) })
	all.Go(func() { f.end(f.fromPeer()) })
	all.Go(func() { f.end(f.toAgent(ctx)) })
	all.Wait()
	f.timer.Stop()
	if errors.Is(f.why, io.EOF) {
		return nil
	}
	return f.why
}

// Up and Down are how many bytes of payload were passed on.
func (f *Flow) Up() uint64 { return f.up.Load() }

// Down is from the peer to the agent.
func (f *Flow) Down() uint64 { return f.down.Load() }

// end ends all of it; the first reason stays.
func (f *Flow) end(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why != nil {
		return
	}
	f.why = why
	f.queue.close()
	_ = f.Agent.Close()
	_ = f.Peer.Close()
}

func (f *Flow) toPeer(ctx context.Context) error {
	buf := make([]byte, MaxPayload)
	for {
		n, err := f.Agent.Read(buf)
		if err != nil {
			return err
		}
		if err := f.pass(ctx, f.Peer, buf[:n], &f.up); err != nil {
			return err
		}
	}
}

// fromPeer reads on while the agent does not: the kernel would drop the newest.
func (f *Flow) fromPeer() error {
	buf := make([]byte, MaxPayload)
	for {
		n, err := f.Peer.Read(buf)
		if err != nil {
			return err
		}
		f.queue.put(buf[:n])
	}
}

func (f *Flow) toAgent(ctx context.Context) error {
	for {
		payload, ok := f.queue.next()
		if !ok {
			return net.ErrClosed
		}
		if err := f.pass(ctx, f.Agent, payload, &f.down); err != nil {
			return err
		}
	}
}

// pass charges a whole payload and sends it. One that does not fit the path is dropped,
// as a router would.
func (f *Flow) pass(ctx context.Context, to net.Conn, payload []byte, count *atomic.Uint64) error {
	for charged := 0; charged < len(payload); {
		n, err := f.Bytes.Charge(ctx, len(payload)-charged)
		if err != nil {
			f.Bytes.Settle(0, -charged)
			return err
		}
		charged += n
	}
	switch _, err := to.Write(payload); {
	case errors.Is(err, syscall.EMSGSIZE):
		f.Bytes.Settle(0, -len(payload))
		return nil
	case err != nil:
		f.Bytes.Settle(0, -len(payload))
		return err
	}
	count.Add(uint64(len(payload)))
	f.touch()
	return nil
}

func (f *Flow) touch() { f.last.Store(time.Now().UnixNano()) }

// check ends a flow in which nothing moves.
func (f *Flow) check() {
	if quiet := time.Since(time.Unix(0, f.last.Load())); quiet < f.Idle {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.timer.Reset(f.Idle - quiet)
		return
	}
	f.end(ErrIdle)
}
