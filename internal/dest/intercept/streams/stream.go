package streams

import (
	"skep.dev/skep/internal/dest/intercept/ws"
	"skep.dev/skep/internal/secret"
)

// stream is one request and its answer, from its head on until both have ended.
type stream struct {
	id      uint32 // with the agent
	up      uint32 // with the destination; 0: it has not heard of it
	request request
	at      secret.At

	agentDone, upDone bool
	begun             bool // some of the answer has passed
	socket            bool // an extended CONNECT, answered by a yes

	granted int64 // what the agent may still send
	window  int64 // what may still be sent to the destination
	early   int64 // what the agent lets be sent to it before the destination has heard of it
	back    int64 // the agent's window at the beginning

	pending []byte // what the destination has no window for
	last    func(b []byte) []byte
	whole   bool // the body is read whole, into pending, before the request is sent
	room    int  // that was taken for it all

	stray  *secret.Stray
	watch  *secret.Watch
	agent  *ws.Agent
	server *ws.Server
}

// close overwrites what a stream has.
func (s *stream) close() {
	clear(s.pending[:cap(s.pending)])
	s.pending = nil
	s.request.Wipe()
	if s.watch != nil {
		s.watch.Close()
	}
	if s.agent != nil {
		s.agent.Close()
	}
	if s.server != nil {
		s.server.Close()
	}
}
