package peer

import (
	"net/http"
	"slices"
)

// May decides whether a peer may make a call.
type May func(Peer) bool

// OneOf is for the peers of these uids.
func OneOf(uids []uint32) May {
	return func(p Peer) bool { return slices.Contains(uids, p.UID) }
}

// Check puts the check of one call before its handler.
func (may May) Check(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := Of(r.Context()); !ok || !may(p) {
			http.Error(w, "this daemon works for another user", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
