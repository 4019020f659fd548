package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"syscall"

	"connectrpc.com/connect"

	"skep.dev/skep/internal/sys"
)

// peer is who made a connection, by the kernel's word.
type peer struct{ uid uint32 }

// peerKey is where a connection's peer stands in its contexts.
type peerKey struct{}

// guarded lets only owners connect: anyone else is hung up on at accept.
type guarded struct {
	net.Listener
	owners []uint32
	log    *slog.Logger
}

// Accept implements net.Listener.
func (g *guarded) Accept() (net.Conn, error) {
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
		if err == nil && slices.Contains(g.owners, uid) {
			return &known{Conn: c, peer: peer{uid}}, nil
		}
		g.log.Warn("refused a connection", "uid", uid, "err", err)
		_ = c.Close()
	}
}

// known is a connection with its peer.
type known struct {
	net.Conn
	peer peer
}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if k, ok := c.(*known); ok {
		return context.WithValue(ctx, peerKey{}, k.peer)
	}
	return ctx
}

// who decides whether a peer may make a call.
type who func(d *Daemon, p peer) error

// owner is whoever the daemon works for, and root.
func owner(d *Daemon, p peer) error {
	if slices.Contains(d.Owners, p.uid) {
		return nil
	}
	return connect.NewError(connect.CodePermissionDenied, errors.New("this daemon works for another user"))
}

// peerOf is the caller of a request. Without one nothing is allowed.
func peerOf(ctx context.Context) (peer, bool) {
	p, ok := ctx.Value(peerKey{}).(peer)
	return p, ok
}

// allow puts the check of one call before its handler.
func (d *Daemon) allow(may who, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := peerOf(r.Context())
		if !ok || may(d, p) != nil {
			http.Error(w, "this daemon works for another user", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
