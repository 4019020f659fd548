package attack

import (
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestN22SocketFamilies: what knows no network namespace, or speaks below TCP and UDP,
// is no socket of a cell's; and its device stays as it is (L11, B21).
func TestN22SocketFamilies(t *testing.T) {
	attack{technique: "sockets", own: true, root: []string{"AF_XDP"}}.run(t, celltest.New(t))
}
