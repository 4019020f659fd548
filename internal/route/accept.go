package route

import (
	"errors"
	"net"
	"os"
	"time"
)

// acceptAgain is when a listener is tried again after its process ran out of descriptors:
// the kernel's queue waits until a flow has ended, and nothing tells us when.
const acceptAgain = 10 * time.Millisecond

// Accept gives take what accept gets, until the listener is closed, which is nil, or
// fails in a way that does not pass, as by its deadline.
func Accept[C any](accept func() (C, error), take func(C)) error {
	for {
		c, err := accept()
		var busy interface{ Temporary() bool }
		switch {
		case err == nil:
			take(c)
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.As(err, &busy) && busy.Temporary() && !errors.Is(err, os.ErrDeadlineExceeded):
			<-time.After(acceptAgain)
		default:
			return err
		}
	}
}
