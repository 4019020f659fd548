// Package forwarder is the host's side of `skep forward` (boundary.md, B178): it listens
// for the user, and hands what connects to the box of his cell.
//
// Its laws:
//   - It listens on the host's loopback and nowhere else, and only while the command runs:
//     nothing in a cell opens or keeps it.
//   - A connection of another user of the host is refused, by the kernel's word on whose
//     it is; where that cannot be told, too. Root may do it all the same.
//   - It reads and writes no byte of a connection.
package forwarder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/forwarding"
	"skep.dev/skep/internal/route"
	"skep.dev/skep/internal/sys/tcpsock"
)

// ErrOver says that the cell has ended.
var ErrOver = errors.New("the cell has ended")

const (
	again   = 100 * time.Millisecond // between a channel that ended and the next
	tries   = 8                      // to find a port that is free in both families
	patient = 10 * time.Second       // for a connection while one box takes the place of another
)

// Event is what became of a connection.
type Event struct {
	What   forwarding.What
	ID     uint32
	Reason flow.Reason
	User   uint32 // of another user, whose connection was refused here
}

// Forwarder hands over what it accepts. Its fields are set before Run.
type Forwarder struct {
	Listeners []*net.TCPListener
	User      uint32
	// Open gives a channel to the box that serves the cell now, or ErrOver.
	Open func(ctx context.Context) (*os.File, error)
	Tell func(Event) // by one at a time

	mu      sync.Mutex
	telling sync.Mutex
	now     *os.File
	changed chan struct{} // closed when now is another
	last    uint32
	waiting map[uint32]waiting
}

// waiting is for a box to say whether it has taken a connection.
type waiting struct {
	channel *os.File
	taken   chan bool // of one
}

// Listen listens on one port of the host's loopback, in both families where the host has
// both; 0 is any that is free.
func Listen(port uint16) ([]*net.TCPListener, error) {
	for try := 1; ; try++ {
		four, err := listen("tcp4", "127.0.0.1", port)
		if err != nil {
			return nil, err
		}
		at, ok := four.Addr().(*net.TCPAddr)
		if !ok {
			return nil, errors.Join(errors.New("listen: no TCP address"), four.Close())
		}
		six, err := listen("tcp6", "::1", uint16(at.Port))
		switch {
		case err == nil:
			return []*net.TCPListener{four, six}, nil
		case errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.EADDRNOTAVAIL):
			return []*net.TCPListener{four}, nil // no IPv6 here
		case port != 0 || try == tries:
			return nil, errors.Join(err, four.Close())
		}
		_ = four.Close()
	}
}

func listen(network, host string, port uint16) (*net.TCPListener, error) {
	l, err := net.Listen(network, net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return nil, err
	}
	t, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on %s: no TCP", host), l.Close())
	}
	return t, nil
}

// Run forwards until ctx ends, which is nil, or the cell does, which is ErrOver. The
// listeners are closed then.
func (f *Forwarder) Run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	f.changed, f.waiting = make(chan struct{}), map[uint32]waiting{}
	failed := make(chan error, len(f.Listeners)+1)
	var all sync.WaitGroup
	for _, l := range f.Listeners {
		all.Go(func() { failed <- f.accept(ctx, l) })
	}
	all.Go(func() { failed <- f.follow(ctx) })
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	end()
	for _, l := range f.Listeners {
		_ = l.Close()
	}
	all.Wait()
	return err
}

// accept hands each connection over.
func (f *Forwarder) accept(ctx context.Context, l *net.TCPListener) error {
	var under sync.WaitGroup
	defer under.Wait()
	err := route.Accept(l.AcceptTCP, func(c *net.TCPConn) {
		under.Go(func() { f.hand(ctx, c) })
	})
	if err != nil {
		return fmt.Errorf("accept a connection: %w", err)
	}
	return nil
}

// hand gives one connection to the box that serves, if it is the user's.
func (f *Forwarder) hand(ctx context.Context, c *net.TCPConn) {
	defer func() { _ = c.Close() }() // the box has a duplicate, or it is refused
	f.mu.Lock()
	f.last++
	id := f.last
	f.mu.Unlock()
	if uid, ok := f.mine(c); !ok {
		reset(c)
		f.tell(Event{What: forwarding.Refused, ID: id, Reason: flow.IdentityUnknown, User: uid})
		return
	}
	file, err := c.File()
	if err != nil {
		reset(c)
		return
	}
	defer func() { _ = file.Close() }()
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	for before := (*os.File)(nil); ; {
		channel := f.current(ctx, before)
		if channel == nil {
			reset(c)
			return
		}
		if f.deliver(ctx, channel, id, file) {
			return
		}
		before = channel
	}
}

// deliver gives a connection to one box, and reports whether that has dealt with it.
func (f *Forwarder) deliver(ctx context.Context, channel *os.File, id uint32, file *os.File) bool {
	w := waiting{channel, make(chan bool, 1)}
	f.mu.Lock()
	f.waiting[id] = w
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.waiting, id)
	}()
	if forwarding.Deliver(channel, id, file) != nil {
		return false
	}
	select {
	case taken := <-w.taken:
		return taken
	case <-ctx.Done():
		return true // by the box, or by nobody any more
	}
}

// answered tells whoever waits for a connection whether the box has taken it; with id 0,
// all that wait for a box that is gone.
func (f *Forwarder) answered(channel *os.File, id uint32, taken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one, w := range f.waiting {
		if w.channel != channel || id != 0 && one != id {
			continue
		}
		select {
		case w.taken <- taken:
		default:
		}
	}
}

// mine reports whether a connection is the user's own, or root's, and whose it is else.
func (f *Forwarder) mine(c *net.TCPConn) (uid uint32, ok bool) {
	ours, theirs := addr(c.LocalAddr()), addr(c.RemoteAddr())
	uid, err := tcpsock.Owner(theirs, ours)
	return uid, err == nil && (uid == f.User || uid == 0)
}

func addr(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(t.AddrPort().Addr().Unmap(), t.AddrPort().Port())
}

// reset ends a connection so that its peer sees that nobody took it.
func reset(c *net.TCPConn) { _ = c.SetLinger(0) }

// current waits for a channel that is another than before; nil when ctx ends.
func (f *Forwarder) current(ctx context.Context, before *os.File) *os.File {
	for {
		f.mu.Lock()
		now, changed := f.now, f.changed
		f.mu.Unlock()
		if now != nil && now != before {
			return now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *Forwarder) set(channel *os.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = channel
	close(f.changed)
	f.changed = make(chan struct{})
}

// follow keeps a channel to the box that serves, until there is none any more. One to a
// box that was replaced stays open as long as we do: what is open there lasts.
func (f *Forwarder) follow(ctx context.Context) error {
	var left sync.WaitGroup
	defer left.Wait()
	for {
		channel, err := f.Open(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = channel.Close() })
		f.set(channel)
		moved := f.listen(channel)
		f.set(nil)
		switch {
		case ctx.Err() != nil:
			return nil
		case moved:
			left.Go(func() {
				f.listen(channel)
				stop()
				_ = channel.Close()
			})
		default:
			stop()
			_ = channel.Close()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// listen tells what a box tells, and whether it ended because another serves.
func (f *Forwarder) listen(channel *os.File) (moved bool) {
	for {
		e, err := forwarding.ReadEvent(channel)
		switch {
		case err != nil || e == forwarding.Event{}:
			f.answered(channel, 0, true)
			return false
		case e.What == forwarding.Moved && e.ID == 0:
			return true
		}
		f.answered(channel, e.ID, e.What != forwarding.Moved)
		if e.What == forwarding.Moved {
			continue
		}
		f.tell(Event{What: e.What, ID: e.ID, Reason: e.Reason})
	}
}

func (f *Forwarder) tell(e Event) {
	f.telling.Lock()
	defer f.telling.Unlock()
	f.Tell(e)
}
