// Package forwarded serves the owner of a cell who reaches its agent from the host
// (boundary.md, B178).
//
// Its laws:
//   - A port is open while a session that skepd has begun for it lasts, and is named to
//     the gate before the first connection is taken (B172). With the session end its flows.
//   - Each connection is one Request through the gate, recorded like any (B176).
//   - What is handed over has to be a TCP connection of the host's loopback.
package forwarded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/box/pause"
	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/forwarding"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/sys"
)

// MaxSessions bounds those of one cell; sendWithin is what its owner's program may take to
// hear what became of a connection (B150).
const (
	MaxSessions = 32
	sendWithin  = time.Second
)

var (
	errTooMany = errors.New("as many ports of the cell are forwarded as can be: end one first")
	errForeign = errors.New("no connection of the host's loopback")
)

// Sessions are those of one cell. Its fields are set before the first.
type Sessions struct {
	Gate   *boundary.Gate
	Pause  *pause.Pause
	Reopen func() error // has the gate decide by what Open says now

	mu    sync.Mutex
	ports []uint16 // one for each session
	ended bool     // no flow begins any more
	flows sync.WaitGroup
}

// Open are the ports that are open now.
func (s *Sessions) Open() []policy.Ingress {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]policy.Ingress, len(s.ports))
	for i, port := range s.ports {
		out[i] = policy.Ingress{Port: port, ID: policy.Forward, Person: true, Forward: true}
	}
	return out
}

// Begin begins a session over a channel, which it owns. When it returns nil the port is
// open. ctx is the life of all flows.
func (s *Sessions) Begin(ctx context.Context, channel *os.File) error {
	o, err := forwarding.ReadOpening(channel)
	if err == nil {
		err = limit.CheckServed(o.Port)
	}
	if err == nil {
		err = s.add(o.Port)
	}
	if err != nil {
		_ = channel.Close()
		return err
	}
	if err := s.Reopen(); err != nil {
		_, _ = channel.Close(), s.drop(o.Port)
		return err
	}
	go (&session{Sessions: s, opening: o, channel: channel}).run(ctx)
	return nil
}

// Wait returns when every flow is over. None begins after it.
func (s *Sessions) Wait() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.flows.Wait()
}

func (s *Sessions) add(port uint16) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ports) >= MaxSessions {
		return errTooMany
	}
	s.ports = append(s.ports, port)
	return nil
}

func (s *Sessions) drop(port uint16) error {
	s.mu.Lock()
	if i := slices.Index(s.ports, port); i >= 0 {
		s.ports = slices.Delete(s.ports, i, i+1)
	}
	s.mu.Unlock()
	return s.Reopen()
}

// flow counts one that begins, unless none may.
func (s *Sessions) flow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.flows.Add(1)
	return true
}

// session is one port for one program of the cell's owner.
type session struct {
	*Sessions
	opening forwarding.Opening
	channel *os.File

	telling sync.Mutex
}

// run takes connections until the program is gone, or the box's flows end. To another box
// that has the cell the program comes by itself, once it is told; what it has open here
// lasts as long as it does.
func (s *session) run(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = s.channel.SetReadDeadline(time.Unix(1, 0)) })
	err := s.Pause.Loop(s.channel, func() error { return s.take(ctx) })
	if err == nil && s.Pause.Over() {
		s.tell(forwarding.Event{What: forwarding.Moved})
		s.outlast()
	}
	end()
	stop()
	_ = s.channel.Close()
	_ = s.drop(s.opening.Port) // a policy that was valid with the port is without it
}

// take serves what comes, and returns nil at the program's end.
func (s *session) take(ctx context.Context) error {
	for {
		id, f, err := forwarding.Next(s.channel)
		switch {
		case err != nil:
			return fmt.Errorf("take a forwarded connection: %w", err)
		case f == nil:
			return nil
		}
		c, err := connection(f)
		_ = f.Close()
		if err != nil {
			s.tell(forwarding.Event{What: forwarding.Refused, ID: id, Reason: flow.PortNotPermitted})
			continue
		}
		if !s.flow() {
			boundary.Reset(c)
			return nil
		}
		go func() {
			defer s.flows.Done()
			s.deliver(ctx, id, c)
		}()
	}
}

// outlast waits for the program's end. What it still hands over is for the other box.
func (s *session) outlast() {
	for {
		id, f, err := forwarding.Next(s.channel)
		if err != nil || f == nil {
			return
		}
		_ = f.Close()
		s.tell(forwarding.Event{What: forwarding.Moved, ID: id})
	}
}

// connection is what was handed over, if it is what it has to be.
func connection(f *os.File) (*net.TCPConn, error) {
	kind, err := sys.KindOf(f)
	switch {
	case err != nil:
		return nil, err
	case !kind.IsStream() || !kind.Addr.Addr().Unmap().IsLoopback():
		return nil, errForeign
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	t, ok := c.(*net.TCPConn)
	if !ok || t.RemoteAddr() == nil {
		_ = c.Close()
		return nil, errForeign
	}
	return t, nil
}

func (s *session) deliver(ctx context.Context, id uint32, c *net.TCPConn) {
	q := flow.Request{
		ID: flow.NewID(), Conn: flow.NewID(), Peer: s.opening.Peer, Direction: flow.In, Wire: flow.Native, Transport: flow.TCP,
		Addr: policy.IngressAt(), Port: s.opening.Port, Count: 1,
	}
	a := &arrival{Connected: boundary.Connected{Conn: c}, session: s, id: id}
	s.Gate.Serve(ctx, q, a)
	if a.open {
		s.tell(forwarding.Event{What: forwarding.Ended, ID: id})
	}
}

// tell tells the program. One that does not listen is not waited for.
func (s *session) tell(e forwarding.Event) {
	s.telling.Lock()
	defer s.telling.Unlock()
	_ = s.channel.SetWriteDeadline(time.Now().Add(sendWithin))
	if err := e.Send(s.channel); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = s.channel.SetReadDeadline(time.Unix(1, 0)) // the end of the session
	}
}

// arrival tells what becomes of a connection.
type arrival struct {
	boundary.Connected
	session *session
	id      uint32
	open    bool
}

// Refuse implements boundary.Arrival.
func (a *arrival) Refuse(why flow.Reason, detail string) {
	a.session.tell(forwarding.Event{What: forwarding.Refused, ID: a.id, Reason: why})
	a.Connected.Refuse(why, detail)
}

// Open implements boundary.Arrival.
func (a *arrival) Open() net.Conn {
	a.open = true
	a.session.tell(forwarding.Event{What: forwarding.Opened, ID: a.id})
	return a.Connected.Open()
}
