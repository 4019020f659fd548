package daemon

import (
	"net/http"
	"slices"

	"skep.dev/skep/internal/daemon/peer"
)

// who decides whether a peer may make a call.
type who func(d *Daemon, p peer.Peer) bool

// owner is whoever the daemon works for, and root.
func owner(d *Daemon, p peer.Peer) bool { return slices.Contains(d.Owners, p.UID) }

// allow puts the check of one call before its handler.
func (d *Daemon) allow(may who, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := peer.Of(r.Context()); !ok || !may(d, p) {
			http.Error(w, "this daemon works for another user", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
