// Package service is the program skep-model: the gateway as skepd drives it over
// the control socket.
//
// Its laws:
//   - It holds the providers' keys; they came as descriptors and leave only as a
//     header to their own provider.
//   - A cell's connection and amounts come from skepd alone.
//   - Confined, it opens no file but those that TLS and names need.
package service

import (
	"context"
	"crypto/sha256"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"

	"skep.dev/skep/internal/budget"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/model"
	"skep.dev/skep/internal/model/control"
	"skep.dev/skep/internal/model/script"
)

// Transport makes the one way to a provider, from its base URL.
type Transport func(baseURL string) (http.RoundTripper, error)

// Service implements control.Handler.
type Service struct {
	gateway   *model.Gateway
	machine   *budget.Machine
	transport Transport
	log       *slog.Logger

	mu    sync.Mutex
	cells map[string]*cell

	made map[string]made // targets of the last configuration; see Configure
}

// made is a target with what it was made from.
type made struct {
	from  [sha256.Size]byte
	route model.Route
}

// cell is one that has not ended.
type cell struct {
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup // connections
}

// Run serves skepd on sock until it is gone. run is a text that no earlier
// skep-model on this ledger had; ids of calls begin with it.
func Run(sock *os.File, run string, transport Transport, log *slog.Logger) error {
	server := control.NewServer(sock)
	machine := budget.New(nil) // skepd's ledger holds what was spent
	s := &Service{
		gateway: model.New(run, recorder{server}, machine, log),
		machine: machine, transport: transport, log: log, cells: map[string]*cell{},
	}
	err := server.Serve(s)
	s.endAll()
	return err
}

// recorder writes through skepd.
type recorder struct{ server *control.Server }

// Admitted returns once the entry is durable.
func (r recorder) Admitted(ctx context.Context, cell string, e kind.ModelAdmitted) error {
	return r.server.Record(ctx, cell, &e)
}

// Settled returns once the entry is durable.
func (r recorder) Settled(ctx context.Context, cell string, e kind.ModelSettled) error {
	return r.server.Record(ctx, cell, &e)
}

// AddCell serves a cell's connection; the first one of a cell opens its account.
func (s *Service) AddCell(c control.Cell, f *os.File) error {
	defer f.Close()
	who := model.Cell{ID: c.ID, Agent: c.Agent, Roles: c.Roles}
	if err := who.Check(); err != nil {
		return err
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("use the connection of cell %s: %w", c.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.cells[c.ID]
	if held == nil {
		limit := budget.Of(budget.Tokens, c.Tokens).With(budget.MicroUSD, c.MicroUSD)
		if err := s.machine.Open(c.ID, "", limit); err != nil {
			_ = conn.Close()
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		held = &cell{ctx: ctx, cancel: cancel}
		s.cells[c.ID] = held
	}
	held.work.Go(func() {
		if err := s.gateway.ServeConn(held.ctx, conn, who); err != nil {
			s.log.Warn("connection of a cell ended", "error", err)
		}
	})
	return nil
}

// EndCell breaks off the cell's calls, waits until they are settled, and forgets
// it. A cell that is not there has ended.
func (s *Service) EndCell(id string) error {
	s.mu.Lock()
	held := s.cells[id]
	delete(s.cells, id)
	s.mu.Unlock()
	if held == nil {
		return nil
	}
	held.cancel()
	held.work.Wait()
	// Uncertain holds stay uncertain in the ledger; here they end with the cell.
	if err := s.machine.Close(id); err != nil {
		s.log.Info("a cell ended with calls of unknown outcome", "cell", id, "error", err)
	}
	return nil
}

func (s *Service) endAll() {
	s.mu.Lock()
	ids := make([]string, 0, len(s.cells))
	for id := range s.cells {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	for _, id := range ids {
		_ = s.EndCell(id)
	}
}

// Configure replaces the routes. A target that cannot be made refuses the whole
// configuration, and what held before holds on. One that has not changed is
// kept as it is: cells are in the middle of its script, or connected. Only one
// goroutine calls it.
func (s *Service) Configure(cfg control.Config) error {
	targets := map[string]made{}
	for name, t := range cfg.Targets {
		m, err := s.target(name, t)
		if err != nil {
			return fmt.Errorf("target %s: %w", name, err)
		}
		targets[name] = m
	}
	routes := model.Routes{}
	for role, names := range cfg.Roles {
		for _, name := range names {
			m, ok := targets[name]
			if !ok {
				return fmt.Errorf("role %s: there is no target %s", role, name)
			}
			routes[role] = append(routes[role], m.route)
		}
		if len(names) == 0 {
			return errors.New("role " + role + " has no target")
		}
	}
	if err := s.gateway.SetRoutes(routes); err != nil {
		return err
	}
	s.made = targets
	return nil
}

// target takes the one of before if nothing about it has changed.
func (s *Service) target(name string, t control.Target) (made, error) {
	var content []byte
	if t.File != nil {
		b, err := io.ReadAll(io.LimitReader(t.File, script.MaxFile+1))
		if err != nil {
			return made{}, fmt.Errorf("read its script or key: %w", err)
		}
		content = b
	}
	t.File, t.Slot = nil, 0
	described, err := json.Marshal(t)
	if err != nil {
		return made{}, fmt.Errorf("print its description: %w", err)
	}
	from := sha256.Sum256(slices.Concat(described, []byte{0}, content))
	if before, ok := s.made[name]; ok && before.from == from {
		return before, nil
	}
	route, err := s.route(name, t, content)
	return made{from: from, route: route}, err
}
