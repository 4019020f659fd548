package models

import (
	"context"

	"skep.dev/skep/internal/handover/bequest"
	"skep.dev/skep/internal/model/control"
)

// Left is the gateway as it is left to another skepd (L20a).
type Left struct {
	Socket bequest.FD       `json:"socket,omitzero"` // none: no skep-model runs
	Cells  []string         `json:"cells,omitzero"`  // that it was given
	Spent  map[string]Spent `json:"spent,omitzero"`
}

// Heritable is a gateway that can be left to another skepd.
type Heritable interface {
	Pause(ctx context.Context) error
	Resume()
	Leave(e *bequest.Estate) Left
	Inherit(l Left, h *bequest.Heir)
}

// Pause returns when nothing is under way between skepd and skep-model; whoever wants
// something of it waits for Resume.
func (g *Gateway) Pause(ctx context.Context) error {
	g.mu.Lock()
	if !g.lives() {
		return nil
	}
	if err := g.client.Pause(ctx); err != nil {
		g.mu.Unlock()
		return err
	}
	return nil
}

// lives tells whether there is a skep-model. The caller has the lock.
func (g *Gateway) lives() bool {
	if g.client == nil {
		return false
	}
	select {
	case <-g.client.Done():
		return false
	default:
		return true
	}
}

// Resume goes on where Pause stopped.
func (g *Gateway) Resume() {
	if g.lives() {
		g.client.Resume()
	}
	g.mu.Unlock()
}

// Leave describes a gateway that is paused.
func (g *Gateway) Leave(e *bequest.Estate) Left {
	l := Left{Spent: map[string]Spent{}}
	if g.lives() {
		socket, cells := g.client.Leave()
		l.Socket, l.Cells = e.Leave(socket), cells
	}
	for id := range g.accounts.all { // nobody counts while it is paused
		l.Spent[id] = g.accounts.of(id)
	}
	return l
}

// Inherit goes on with what another skepd left. It is called before anything else.
func (g *Gateway) Inherit(l Left, h *bequest.Heir) {
	for id, spent := range l.Spent {
		g.accounts.open(id)
		if spent.Held == nil {
			spent.Held = map[string]Hold{}
		}
		*g.accounts.all[id] = spent
	}
	if sock := h.Take(l.Socket, "skep-model"); sock != nil {
		g.client = control.Inherit(sock, g.record, l.Cells)
		go g.follow(g.client)
	}
}
