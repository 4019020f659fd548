// Package peer says who makes a call, by the kernel's word.
//
// Its laws:
//   - Who may not connect is hung up on at accept, before a byte is read.
//   - A context without a peer is nobody, and nobody may do anything.
package peer

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"

	"skep.dev/skep/internal/sys"
)

// Peer is who made a connection.
type Peer struct {
	UID  uint32
	Gone <-chan struct{} // closed with the connection; nil where nobody knows
}

// String names a peer in the record.
func (p Peer) String() string { return fmt.Sprintf("uid:%d", p.UID) }

// key is where a connection's peer stands in its contexts.
type key struct{}

// Listener lets only owners connect.
type Listener struct {
	net.Listener
	Owners []uint32
	Log    *slog.Logger
}

// Accept implements net.Listener.
func (g *Listener) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		sc, ok := c.(syscall.Conn)
		if !ok {
			_ = c.Close()
			continue
		}
		uid, err := sys.PeerUID(sc)
		if err == nil && slices.Contains(g.Owners, uid) {
			gone := make(chan struct{})
			return &known{Conn: c, peer: Peer{uid, gone}, gone: sync.OnceFunc(func() { close(gone) })}, nil
		}
		g.Log.Warn("refused a connection", "uid", uid, "err", err)
		_ = c.Close()
	}
}

// known is a connection with its peer.
type known struct {
	net.Conn
	peer Peer
	gone func()
}

// Close implements net.Conn.
func (k *known) Close() error {
	k.gone()
	return k.Conn.Close()
}

// FromConn puts a connection's peer into its contexts, as http.Server.ConnContext.
func FromConn(ctx context.Context, c net.Conn) context.Context {
	if k, ok := c.(*known); ok {
		return context.WithValue(ctx, key{}, k.peer)
	}
	return ctx
}

// With is a context of a peer.
func With(ctx context.Context, p Peer) context.Context { return context.WithValue(ctx, key{}, p) }

// Of is the caller of a request.
func Of(ctx context.Context) (p Peer, ok bool) {
	p, ok = ctx.Value(key{}).(Peer)
	return p, ok
}
