// Package channel is the one way from a guest to its boundary: a Unix socket, or
// vsock in a virtual machine.
//
// Its laws:
//   - One attempt is one request on one fresh connection. There is no retry and no
//     other path (guest.md, G52).
//   - No byte is sent but the request and what the flow itself sends (G21).
package channel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/tunnel"
)

// MaxPath is the longest socket path, in bytes (B30).
const MaxPath = 104

// dialTime bounds a connect to the boundary (G55).
const dialTime = 10 * time.Second

// answerTime is the longest hold and dial of a boundary (G50).
const answerTime = 155 * time.Second

// Boundary is where the boundary listens. The zero Boundary cannot be dialed.
type Boundary struct {
	path      string
	cid, port uint32

	dial func(cid, port uint32) (net.Conn, error) // vsock, or a test's
}

// Parse takes a socket path or "vsock://CID:PORT".
func Parse(s string) (Boundary, error) {
	rest, ok := strings.CutPrefix(s, "vsock://")
	if !ok {
		if s == "" || len(s) > MaxPath {
			return Boundary{}, fmt.Errorf("the boundary's socket path has %d bytes; want 1 to %d", len(s), MaxPath)
		}
		return Boundary{path: s}, nil
	}
	cid, port, ok := strings.Cut(rest, ":")
	c, cidErr := strconv.ParseUint(cid, 10, 32)
	p, portErr := strconv.ParseUint(port, 10, 32)
	if !ok || cidErr != nil || portErr != nil || p == 0 {
		return Boundary{}, fmt.Errorf("boundary %q: want vsock://CID:PORT, usually vsock://2:1080", s)
	}
	return Boundary{cid: uint32(c), port: uint32(p), dial: dialVsock}, nil
}

// Over is a boundary behind a port of a virtual machine's channel that dial opens: for
// tests, where the kernel has no such channel to itself.
func Over(cid, port uint32, dial func(cid, port uint32) (net.Conn, error)) Boundary {
	return Boundary{cid: cid, port: port, dial: dial}
}

// String is what Parse takes.
func (b Boundary) String() string {
	if b.path != "" {
		return b.path
	}
	return fmt.Sprintf("vsock://%d:%d", b.cid, b.port)
}

// Dial connects and sends nothing. The zero Boundary is nowhere.
func (b Boundary) Dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if b.path != "" {
		var d net.Dialer
		return d.DialContext(ctx, "unix", b.path)
	}
	if b.dial == nil {
		return nil, errors.New("there is no boundary to reach")
	}
	type result struct {
		c   net.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := b.dial(b.cid, b.port)
		done <- result{c, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		return r.c, nil
	case <-ctx.Done():
		go func() { // the library's connect takes no context; it ends by the kernel's own time
			if r := <-done; r.err == nil {
				_ = r.c.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

func dialVsock(cid, port uint32) (net.Conn, error) {
	c, err := vsock.Dial(cid, port, nil)
	if err != nil {
		return nil, err // not c: a nil pointer in an interface is no nil
	}
	return c, nil
}

// Conn is a tunnel: what came right behind the boundary's answer is read first.
type Conn struct {
	net.Conn
	r *bufio.Reader
}

// Read reads from the other side.
func (c *Conn) Read(p []byte) (int, error) { return c.r.Read(p) }

// Reader is the buffered other side.
func (c *Conn) Reader() *bufio.Reader { return c.r }

// CloseWrite ends our direction only.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.New("the channel has no half-close")
}

// Gone reports whether the other side has closed both directions. At the end of its
// bytes that is no half-close but the end of the whole flow, however it came about: the
// boundary was reset by the destination, or it revoked the flow, or died.
func (c *Conn) Gone() bool {
	raw, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = control.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n == 1 && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}

// Open asks the boundary for t. Any other answer than a success, and none in
// time, is an error.
func (b Boundary) Open(ctx context.Context, t tunnel.Target) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	raw, err := b.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("reach the boundary: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c := &Conn{Conn: raw, r: bufio.NewReaderSize(raw, readerSize(t.Transport))}
	if err = tunnel.Ask(raw, t); err == nil {
		err = tunnel.ReadAnswer(c.r, t.Transport)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

// readerSize: a TCP flow reads into large buffers of its own, past this one.
func readerSize(t flow.Transport) int {
	if t == flow.UDP {
		return 64 << 10
	}
	return 1 << 10
}
