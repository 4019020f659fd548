package model

import (
	"errors"
	"net"
	"time"

	"skep.dev/skep/internal/boundary"
	"skep.dev/skep/internal/flow"
)

// reason is what ended the connection: something outside, the cell's end, or a refusal.
// What the end broke off looks like a gateway that does not answer.
func (s *session) reason() flow.Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended != flow.None:
		return s.ended
	case s.ctx.Err() != nil && (s.why == flow.None || s.why == flow.NoProvider):
		return flow.Revoked
	}
	return s.why
}

// end ends the connection for a reason, the first one.
func (s *session) end(why flow.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == flow.None {
		s.ended = why
	}
	boundary.Reset(s.agent)
}

// within bounds the reads that come: by a time, however much moves.
func (s *session) within(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patient = false
	_ = s.agent.SetReadDeadline(time.Now().Add(d))
}

// patiently lets the reads that come take as long as something moves either way.
func (s *session) patiently() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patient = true
	s.moved.Store(time.Now().UnixNano())
	_ = s.agent.SetReadDeadline(time.Now().Add(s.idle))
}

// again tells whether a read that took too long may go on; if that was for idleness,
// the connection is over.
func (s *session) again() bool {
	s.mu.Lock()
	if !s.patient {
		s.mu.Unlock()
		return false
	}
	rest := s.idle - time.Since(time.Unix(0, s.moved.Load()))
	if rest > 0 {
		_ = s.agent.SetReadDeadline(time.Now().Add(rest))
	}
	s.mu.Unlock()
	if rest <= 0 {
		s.end(flow.IdleTimeout)
	}
	return rest > 0
}

// fromAgent and toAgent count what crosses, as far as the budget has room for it.
type fromAgent struct{ s *session }

func (a fromAgent) Read(b []byte) (int, error) {
	for {
		n, err := a.s.agent.Read(b)
		if n > 0 {
			return a.s.took(n, err)
		}
		var late net.Error
		if !errors.As(err, &late) || !late.Timeout() || !a.s.again() {
			return n, err
		}
	}
}

// took charges what was read.
func (s *session) took(n int, err error) (int, error) {
	for charged := 0; charged < n; {
		room, short := s.room(n - charged)
		if short != nil {
			return 0, short
		}
		charged += room
	}
	s.up.Add(uint64(n))
	s.moved.Store(time.Now().UnixNano())
	return n, err
}

// room is how many of n bytes may move now; without any, the connection is over.
func (s *session) room(n int) (int, error) {
	room, err := s.bytes.Charge(s.ctx, n)
	if why := boundary.EndedBy(err); why != flow.None {
		s.end(why)
	}
	return room, err
}

type toAgent struct{ s *session }

func (a toAgent) Write(b []byte) (int, error) {
	sent := 0
	for sent < len(b) {
		room, err := a.s.room(len(b) - sent)
		if err != nil {
			return sent, err
		}
		n, err := a.s.agent.Write(b[sent : sent+room])
		a.s.bytes.Settle(0, n-room)
		a.s.down.Add(uint64(n))
		a.s.moved.Store(time.Now().UnixNano())
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}
