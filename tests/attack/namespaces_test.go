package attack

import (
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestNamespacesCannotBeMadeOrEntered: no capability comes back by way of a
// namespace of one's own (L7, L11).
func TestNamespacesCannotBeMadeOrEntered(t *testing.T) {
	pid, _ := victim(t)
	attack{
		technique: "namespaces", own: true, outside: []string{pid}, inside: []string{"1"},
		root: []string{"setns mnt of another process", "setns net of another process", "setns ipc of another process", "setns uts of another process", "setns cgroup of another process"},
	}.run(t, celltest.New(t))
}
