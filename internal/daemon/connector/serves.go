package connector

import (
	"fmt"
	"os"
	"path/filepath"

	"skep.dev/skep/internal/boundary/link"
	"skep.dev/skep/internal/bundle"
	"skep.dev/skep/internal/sys"
)

// ingressDir is below Dir, and no agent's: a dot begins no name of one. What callers connect
// to must not stand where a cell could put another in its place.
const ingressDir = ".ingress"

// ingressOf is where callers of an agent come to.
func (c *Connector) ingressOf(agent string) string {
	if c.Ingress != "" {
		return c.Ingress
	}
	return filepath.Join(c.Dir, ingressDir, agent+".sock")
}

// guestOf is the agent's side of its reverse channel.
func (c *Connector) guestOf(agent string) string {
	if filepath.IsAbs(c.Guest) || c.Dir == "" {
		return c.Guest
	}
	return filepath.Join(c.Dir, agent, c.Guest)
}

// served is what the box of an agent that serves is told.
func (c *Connector) served(s *bundle.Serves) *link.Serves {
	if s == nil {
		return nil
	}
	return &link.Serves{Name: s.Name, Port: s.Port, Form: c.Form, Monitor: c.Monitor, Callers: []uint32{uint32(os.Getuid()), 0}}
}

// published has the agent's sockets found, first by callers.
func (r *running) published() error {
	if r.found != nil {
		if err := r.found(); err != nil {
			return err
		}
	}
	return r.publish()
}

// serves makes the socket for callers, and begins to give the box connections to the agent's
// side: it has no path of its own. What comes over them is the box's to read. The two files
// are the box's ends, in the order in which it is given them.
func (r *running) serves(c *Connector, agent string) ([]*os.File, error) {
	r.guest = c.guestOf(agent)
	at := c.ingressOf(agent)
	ingress, found, err := Prepare(at, Ours)
	if err != nil {
		return nil, fmt.Errorf("make the ingress socket: %w", err)
	}
	r.ingress, r.found = at, found
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return []*os.File{ingress}, err
	}
	r.dials = ours
	// How it ended is of no interest: the box is gone, or gets nothing more.
	go func() {
		_ = link.ServeDials(ours, func() (*os.File, error) { return sys.ConnectUnix(r.guest, sys.Stream) })
	}()
	return []*os.File{theirs, ingress}, nil
}
