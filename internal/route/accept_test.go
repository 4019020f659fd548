package route

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
)

// A listener outlives a moment without descriptors, and nothing else.
func TestAccept(t *testing.T) {
	broken := errors.New("broken")
	full := &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	for name, c := range map[string]struct{ end, want error }{
		"closed":   {net.ErrClosed, nil},
		"broken":   {broken, broken},
		"deadline": {os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			answers := []error{nil, full, full, nil, c.end}
			n := 0
			var took []int
			err := Accept(func() (int, error) { n++; return n, answers[n-1] }, func(i int) { took = append(took, i) })
			if !errors.Is(err, c.want) || !slices.Equal(took, []int{1, 4}) {
				t.Errorf("%v, took %v", err, took)
			}
		})
	}
}
