package boundary

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"skep.dev/skep/internal/testlab"
)

// bulkBytes go each way: enough for many turns of every buffer, and in make soak 1 GiB.
func bulkBytes() int {
	if os.Getenv("SKEP_SOAK") != "" {
		return 1 << 30
	}
	return 64 << 20
}

// TestBG17InACell: what an agent sends and gets is exact to the last byte, one half of
// a connection closes without the other, and a reset is a reset on the other side.
func TestBG17InACell(t *testing.T) {
	testlab.Test(t, func(t *testing.T, lab *testlab.Lab) {
		lab.Host("four.test", public4)
		lab.Echo(public4 + ":7080") // closes its half after the agent has closed its own
		lab.Serve(public4+":7081", func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 1))
			_ = c.(interface{ SetLinger(sec int) error }).SetLinger(0) // its close is a reset
		})
		ended := make(chan error, 1)
		lab.Serve(public4+":7082", func(c net.Conn) {
			_, err := io.Copy(c, c)
			ended <- err
		})
		n := bulkBytes()
		h := open(t, lab, "net: [{name: four.test, ports: [7080-7082]}]\n")
		r := h.try(attempt{How: "bulk", At: "four.test:7080", N: n}, attempt{How: "tcp", At: "four.test:7081"}, attempt{How: "reset", At: "four.test:7082"})
		for i, want := range []string{"", "ECONNRESET", ""} {
			if r[i].Err != want {
				t.Errorf("%+v, want %q", r[i], want)
			}
		}
		select {
		case err := <-ended:
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a reset of the agent reached the server as %v", err)
			}
		case <-time.After(patience):
			t.Error("a reset of the agent did not reach the server")
		}
		bytes := strconv.Itoa(n)
		if record := h.record(); !slices.ContainsFunc(record, func(e entry) bool {
			return e.Kind == "flow.outcome" && e.destination() == "four.test:7080" && e.Body["bytes_up"] == bytes && e.Body["bytes_down"] == bytes
		}) {
			t.Errorf("the record does not have %s bytes each way: %v", bytes, record)
		}
	})
}
