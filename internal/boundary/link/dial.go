package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"skep.dev/skep/internal/sys"
)

// A box has no file of its own, and so no path: beside the link it has a seqpacket socket by
// which it asks its connector for a connection to the agent's side.
//
//	box                         connector
//	"d"                    ->
//	                       <-   "y" + 1 descriptor, or "n" and why not
const (
	dialWithin = 5 * time.Second
	maxWhy     = 256
)

var errDial = errors.New("what the connector says about a connection is not understood")

// Dialer is the box's end.
type Dialer struct {
	Sock *os.File

	mu sync.Mutex
}

// Dial gets one connection. The file is the caller's.
func (d *Dialer) Dial(context.Context) (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Sock.SetDeadline(time.Now().Add(dialWithin)); err != nil {
		return nil, fmt.Errorf("ask for the agent's side: %w", err)
	}
	if err := sys.SendFDs(d.Sock, []byte("d")); err != nil {
		return nil, fmt.Errorf("ask for the agent's side: %w", err)
	}
	buf := make([]byte, 1+maxWhy)
	n, files, err := sys.RecvFDs(d.Sock, buf, 1)
	switch {
	case err != nil:
		_ = d.Sock.Close() // a late answer would be taken for the next one
		return nil, fmt.Errorf("ask for the agent's side: %w", err)
	case n == 1 && buf[0] == 'y' && len(files) == 1:
		return files[0], nil
	case n > 0 && buf[0] == 'n' && len(files) == 0:
		return nil, fmt.Errorf("ask for the agent's side: %q", buf[1:n])
	}
	sys.CloseAll(files)
	_ = d.Sock.Close()
	return nil, errDial
}

// ServeDials answers a box until it is gone, or asks for something else.
func ServeDials(sock *os.File, dial func() (*os.File, error)) error {
	buf := make([]byte, 2)
	for {
		n, files, err := sys.RecvFDs(sock, buf, 0)
		sys.CloseAll(files)
		switch {
		case err != nil:
			return err
		case n == 0:
			return nil
		case n != 1 || buf[0] != 'd':
			return errDial
		}
		f, err := dial()
		if err != nil {
			text := err.Error()
			err = sys.SendFDs(sock, append([]byte("n"), text[:min(len(text), maxWhy)]...))
		} else {
			err = sys.SendFDs(sock, []byte("y"), f)
			_ = f.Close()
		}
		if err != nil {
			return err
		}
	}
}
