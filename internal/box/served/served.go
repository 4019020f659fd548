// Package served takes what callers send to the one agent of a cell of another runtime to
// its gate (boundary.md, section 14).
//
// Its laws:
//   - Who may call is the kernel's word on the socket's other end: others get an answer, and
//     the agent's side hears nothing of them.
//   - One connection is one Request, whatever it holds; which port it is for was fixed before
//     the agent ran, and no byte of it selects another (B172).
//   - A refusal has an answer of HTTP with both fields of B60, and nothing behind it.
package served

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/tunnel"
)

const (
	answerTime  = time.Second // for an answer of ours to be taken
	lingerBytes = 64 << 10    // read behind it
)

// Listener serves the callers of one agent. Its fields are set before Serve.
type Listener struct {
	Gate    *boundary.Gate
	Port    uint16   // of the agent
	Callers []uint32 // users who may call

	open  atomic.Int64 // connections
	flows sync.WaitGroup
}

// Serve takes what from accepts to the gate, and returns when from was closed and every
// delivery of it is over. ctx is the life of the deliveries.
func (l *Listener) Serve(ctx context.Context, from net.Listener) error {
	defer l.flows.Wait()
	err := route.Accept(from.Accept, func(c net.Conn) {
		n := l.open.Add(1)
		l.flows.Go(func() {
			defer l.open.Add(-1)
			l.deliver(ctx, c, n)
		})
	})
	if err != nil {
		return fmt.Errorf("accept a caller: %w", err)
	}
	return nil
}

// deliver takes the connection of one caller through the gate, as the n-th that is open.
func (l *Listener) deliver(ctx context.Context, c net.Conn, n int64) {
	uid, err := caller(c)
	q := l.request("uid:" + strconv.FormatUint(uint64(uid), 10))
	why := flow.None
	switch {
	case err != nil || !slices.Contains(l.Callers, uid):
		why = flow.IdentityUnknown
	case n > boundary.OpenIngress:
		why = flow.Busy
	}
	if why != flow.None {
		arrival{c}.Refuse(why, "")
		l.Gate.Reject(ctx, q, why)
		return
	}
	l.Gate.Serve(ctx, q, arrival{c})
}

func (l *Listener) request(peer string) flow.Request {
	return flow.Request{
		ID: flow.NewID(), Conn: flow.NewID(), Peer: peer, Direction: flow.In, Wire: flow.H1, Transport: flow.TCP,
		Addr: policy.IngressAt(), Port: l.Port, Count: 1,
	}
}

func caller(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("a caller without credentials")
	}
	return sys.PeerUID(u)
}

// arrival is one connection of a caller.
type arrival struct{ conn net.Conn }

// Refuse implements boundary.Arrival.
func (a arrival) Refuse(why flow.Reason, _ string) {
	defer func() { _ = a.conn.Close() }()
	text := route.Answer(why)
	if why == flow.IngressUnreachable {
		text = tunnel.Ingress{}.Refused(why)
	}
	_ = a.conn.SetDeadline(time.Now().Add(answerTime))
	if _, err := io.WriteString(a.conn, text); err != nil {
		return
	}
	// A caller who is still sending takes the answer only if he may end.
	if s, ok := a.conn.(interface{ CloseWrite() error }); ok && s.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, a.conn, lingerBytes)
	}
}

// Open implements boundary.Arrival.
func (a arrival) Open() net.Conn { return a.conn }
