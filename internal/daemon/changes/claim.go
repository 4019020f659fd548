package changes

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	"skep.dev/skep/internal/daemon/peer"
)

// claims are the cells whose layer is being merged or dropped, each by one caller.
type claims struct {
	mu  sync.Mutex
	all map[string]*claim
}

// claim is one caller's until it is given up.
type claim struct {
	by    peer.Peer
	ended chan struct{}
}

// claimWait is for a caller who has gone, of which the kernel tells some milliseconds
// later, and for a merge that is almost done.
const claimWait = 5 * time.Second

// take claims a cell; a caller is told who has it, if that does not end soon.
func (s *claims) take(ctx context.Context, id string, by peer.Peer) (*claim, error) {
	late := time.NewTimer(claimWait)
	defer late.Stop()
	for {
		mine, other := s.try(id, by)
		if mine != nil {
			return mine, nil
		}
		select {
		case <-other.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-late.C:
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New(
				"a merge of this cell is under way, by "+other.by.String()+": nothing was begun; wait for its end, or end it"))
		}
	}
}

func (s *claims) try(id string, by peer.Peer) (mine, other *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.all[id]; other != nil {
		return nil, other
	}
	if s.all == nil {
		s.all = map[string]*claim{}
	}
	mine = &claim{by: by, ended: make(chan struct{})}
	s.all[id] = mine
	return mine, nil
}

// renew makes a cell's claim one that does not end with its caller.
func (s *claims) renew(id string, by peer.Peer) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*claim{}
	}
	if was := s.all[id]; was != nil {
		close(was.ended)
	}
	s.all[id] = &claim{by: by, ended: make(chan struct{})}
	return s.all[id]
}

// give gives up a cell if it is still claimed by this one; nil is whoever has it.
func (s *claims) give(id string, c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.all[id]; now != nil && (c == nil || now == c) {
		close(now.ended)
		delete(s.all, id)
	}
}

// until gives a claim up when its caller goes, which ends the process that serves him
// the layer.
func (s *claims) until(gone <-chan struct{}, id string, c *claim) {
	go func() {
		select {
		case <-gone:
			s.give(id, c)
		case <-c.ended:
		}
	}()
}

// Busy says which merge is under way, if one is: what became of it is still to be told.
func (c *Changes) Busy() string {
	c.claims.mu.Lock()
	defer c.claims.mu.Unlock()
	for id, claim := range c.claims.all {
		return "a merge of cell " + id + " is under way, by " + claim.by.String()
	}
	return ""
}
