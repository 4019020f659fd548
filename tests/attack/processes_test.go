package attack

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"skep.dev/skep/internal/cell/celltest"
)

// victim is a process of the host, and an address that is mapped in it.
func victim(t *testing.T) (pid, address string) {
	t.Helper()
	cmd := exec.Command("/bin/cat")
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hold.Close()
		_ = cmd.Wait()
	})
	// Its memory is made after Start returns: until a file is mapped, addresses change.
	mapped := regexp.MustCompile(`(?m)^([0-9a-f]+)-\S+ r.* /\S+$`)
	for late := time.Now().Add(10 * time.Second); ; {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
		if first := mapped.FindSubmatch(maps); first != nil {
			return strconv.Itoa(cmd.Process.Pid), "0x" + string(first[1])
		}
		if err != nil || time.Now().After(late) {
			t.Fatalf("the victim's memory: %v", err)
		}
	}
}

// TestN25ProcessesOutside: no signal, no tracing, no memory, no word of /proc (L7).
func TestN25ProcessesOutside(t *testing.T) {
	c := celltest.New(t)
	pid, address := victim(t)
	attack{technique: "processes", outside: []string{pid, address}, inside: []string{pid, address}}.run(t, c)
}

// TestInitOfTheCell: PID 1 holds the socket to its warden, and an agent of the
// same id may not look into it (L16).
func TestInitOfTheCell(t *testing.T) {
	c := celltest.New(t)
	pid, address := victim(t)
	a := attack{technique: "processes", outside: []string{pid, address}, inside: []string{"pid1", address}}
	out := a.tryOutside(t)
	in := a.tryInside(t, c)
	for _, i := range in {
		if i.verdict == escaped {
			t.Errorf("PID 1 of the cell, %s: %s", i.name, i.why)
		}
	}
	for _, o := range out {
		if o.verdict != escaped {
			t.Errorf("%s does not succeed outside: %s", o.name, o.why)
		}
	}
}
