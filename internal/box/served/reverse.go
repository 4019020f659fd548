package served

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/tunnel"
)

// Reverse is the channel to the agent's side, where a guest's program waits (B174).
type Reverse struct {
	Dial    func(ctx context.Context) (*os.File, error) // a stream that nobody has spoken on
	Form    tunnel.Form
	Monitor uint32 // the port of the guest's vsock, which the monitor of a VM is asked for first; 0 where there is none
}

// Connect reaches the agent's port, by one fresh stream. What the guest answers proves
// nothing (B176); what it sends behind the answer is the agent's, and stays in the socket (B175).
func (r *Reverse) Connect(ctx context.Context, port uint16) (net.Conn, error) {
	f, err := r.Dial(ctx)
	if err != nil {
		return nil, err
	}
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("use the reverse channel: %w", err)
	}
	if err := r.shake(ctx, c, port); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (r *Reverse) shake(ctx context.Context, c net.Conn, port uint16) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return errors.New("the reverse channel is no socket")
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(boundary.IngressTime)
	}
	if err := c.SetDeadline(until); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	in := bufio.NewReader(&lines{raw})
	if r.Monitor != 0 {
		if _, err := fmt.Fprintf(c, "CONNECT %d\n", r.Monitor); err != nil {
			return fmt.Errorf("ask the monitor for the guest: %w", err)
		}
		if err := tunnel.ReadIngressAnswer(in, tunnel.OnlyText); err != nil {
			return fmt.Errorf("ask the monitor for the guest: %w", err)
		}
	}
	if err := tunnel.AskIngress(c, port, r.Form); err != nil {
		return fmt.Errorf("ask the guest for the agent: %w", err)
	}
	if err := tunnel.ReadIngressAnswer(in, r.Form); err != nil {
		return fmt.Errorf("ask the guest for the agent: %w", err)
	}
	return c.SetDeadline(time.Time{})
}

// lines reads a socket a line at a time, and takes no byte of the next before it is asked
// for it.
type lines struct{ socket syscall.RawConn }

func (l *lines) Read(b []byte) (n int, err error) {
	var failed error
	err = l.socket.Read(func(fd uintptr) bool {
		n, failed = sys.PeekInto(int(fd), b)
		if errors.Is(failed, sys.ErrAgain) {
			return false
		}
		for i, c := range b[:max(n, 0)] {
			if c == '\n' {
				n = i + 1
				break
			}
		}
		if failed == nil && n > 0 {
			n, failed = sys.Receive(int(fd), b[:n])
		}
		return true
	})
	switch err = errors.Join(err, failed); {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
