package attack

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"skep.dev/skep/internal/cell/celltest"
)

// TestSharedObjectsOfTheHost: System V and POSIX objects outside are not found by their names (L7).
func TestSharedObjectsOfTheHost(t *testing.T) {
	key, queue := fmt.Sprintf("%#x", 0x5ce90000+os.Getpid()%0xffff), fmt.Sprintf("/skep-attack-%d", os.Getpid())
	maker := attacker(t)
	if out, err := exec.Command(maker, "ipc", "make", key, queue).CombinedOutput(); err != nil {
		t.Fatalf("make the objects: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(maker, "ipc", "drop", key, queue).CombinedOutput(); err != nil {
			t.Errorf("drop the objects: %v\n%s", err, out)
		}
	})
	args := []string{"try", key, queue}
	attack{technique: "ipc", outside: args, inside: args}.run(t, celltest.New(t))
}
