package handover

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"skep.dev/skep/internal/sys"
)

// Clock ends tickets; tests turn it by hand.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func())
}

// Desk keeps descriptors until their ticket is shown.
type Desk struct {
	clock  Clock
	owners []uint32

	mu      sync.Mutex
	waiting map[string]*entry
	conns   map[*os.File]bool
	closed  bool
}

// entry is one ticket's bundle.
type entry struct {
	Bundle
	uid   uint32
	fetch bool // left by skepd for the peer; otherwise offered by the peer for skepd
	until time.Time
	stop  func()
}

// NewDesk makes a desk that speaks with these users only.
func NewDesk(clock Clock, owners ...uint32) *Desk {
	return &Desk{clock: clock, owners: owners, waiting: map[string]*entry{}, conns: map[*os.File]bool{}}
}

// Serve accepts until the listener is closed, by whoever owns it.
func (d *Desk) Serve(listener *os.File) error {
	for {
		conn, err := sys.AcceptUnix(listener)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		uid, err := sys.PeerUID(conn)
		if err != nil || !slices.Contains(d.owners, uid) || !d.keep(conn) {
			_ = conn.Close()
			continue
		}
		go d.talk(conn, uid)
	}
}

// keep notes a connection, so that Close ends it.
func (d *Desk) keep(conn *os.File) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.conns) >= 4*maxTickets {
		return false
	}
	d.conns[conn] = true
	return true
}

// talk answers one connection, one request.
func (d *Desk) talk(conn *os.File, uid uint32) {
	defer func() {
		d.mu.Lock()
		delete(d.conns, conn)
		d.mu.Unlock()
		_ = conn.Close()
	}()
	_ = conn.SetDeadline(time.Now().Add(patience)) // of the socket, not of a ticket
	buf := make([]byte, MaxMessage)
	n, files, err := sys.RecvFDs(conn, buf, MaxFiles)
	if err != nil || n == 0 {
		if err != nil {
			_ = send(conn, answer{Error: err.Error()}, nil)
		}
		return
	}
	a, left, err := d.answer(buf[:n], files, uid)
	if err != nil {
		_ = send(conn, answer{Error: err.Error()}, nil)
		return
	}
	_ = send(conn, a, left)
	sys.CloseAll(left)
}

// answer owns files, and gives back the ones to send.
func (d *Desk) answer(msg []byte, files []*os.File, uid uint32) (answer, []*os.File, error) {
	refuse := func(err error) (answer, []*os.File, error) {
		sys.CloseAll(files)
		return answer{}, nil, err
	}
	var q request
	if err := decode(msg, &q); err != nil {
		return refuse(err)
	}
	switch {
	case q.V != Version:
		return refuse(fmt.Errorf("handover version %d, this is %d", q.V, Version))
	case q.Op == "offer" && q.Ticket == "" && len(q.Roles) == len(files) && len(files) > 0:
		ticket, err := d.put(&entry{Bundle: Bundle{q.Roles, files}, uid: uid})
		if err != nil {
			return refuse(err)
		}
		return answer{Ticket: ticket}, nil, nil
	case q.Op == "fetch" && len(q.Roles) == 0 && len(files) == 0:
		b, err := d.take(q.Ticket, uid, true)
		if err != nil {
			return refuse(err)
		}
		return answer{Roles: b.Roles}, b.Files, nil
	}
	return refuse(fmt.Errorf("a handover is an offer of as many descriptors as roles, or a fetch of a ticket; this is %q with %d roles and %d descriptors", q.Op, len(q.Roles), len(files)))
}

// Take gives what the user offered under a ticket, once.
func (d *Desk) Take(ticket string, uid uint32) (*Bundle, error) {
	return d.take(ticket, uid, false)
}

// Leave keeps a bundle for the user to fetch. The desk owns the files from now on.
func (d *Desk) Leave(uid uint32, b Bundle) (ticket string, err error) {
	ticket, err = d.put(&entry{Bundle: b, uid: uid, fetch: true})
	if err != nil {
		b.Close()
	}
	return ticket, err
}

// Withdraw closes what nobody has fetched: whoever was to fetch it has gone.
func (d *Desk) Withdraw(ticket string) { d.expire(ticket) }

// Close closes everything that waits.
func (d *Desk) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for conn := range d.conns {
		_ = conn.SetDeadline(time.Unix(1, 0))
	}
	for ticket, e := range d.waiting {
		e.stop()
		e.Close()
		delete(d.waiting, ticket)
	}
}

func (d *Desk) put(e *entry) (string, error) {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand)
	ticket := hex.EncodeToString(raw[:])
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.waiting) >= maxTickets {
		return "", ErrFull
	}
	e.until = d.clock.Now().Add(Valid)
	e.stop = d.clock.AfterFunc(Valid, func() { d.expire(ticket) })
	d.waiting[ticket] = e
	return ticket, nil
}

func (d *Desk) expire(ticket string) {
	d.mu.Lock()
	e := d.waiting[ticket]
	delete(d.waiting, ticket)
	d.mu.Unlock()
	if e != nil {
		e.Close()
	}
}

// take finds the bundle of a ticket. Another user's try does not use it up: else
// anyone could spoil it.
func (d *Desk) take(ticket string, uid uint32, fetch bool) (*Bundle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.waiting[ticket]
	if e == nil || e.uid != uid || e.fetch != fetch || !d.clock.Now().Before(e.until) {
		return nil, ErrTicket
	}
	e.stop()
	delete(d.waiting, ticket)
	return &e.Bundle, nil
}
