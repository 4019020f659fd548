// Package models starts and keeps skep-model for skepd, and gives it the
// connections of cells.
//
// Its laws:
//   - skep-model starts at the first cell that has a right to a model, and again
//     after it died: then the cells that had it are given to the new one, with what is
//     left of their budgets.
//   - Keys and scripts are opened here, from the operator's configuration alone,
//     and cross as descriptors. The configuration is read anew for each cell.
package models

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"skep.dev/skep/internal/config"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/model/control"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/sys"
)

// ErrNoRole says that the configuration has none of a cell's roles: the cell gets
// no connection, and its calls are refused.
var ErrNoRole = errors.New("no target is configured for the model roles of the profile: add targets and roles to config.yaml")

// Gateway is skep-model as skepd sees it.
type Gateway struct {
	Program string
	Load    func() (*config.Config, error)
	Record  control.Records
	Stderr  *os.File
	// Lost has the cells that were served serve again, after skep-model died. An error
	// has it called again.
	Lost func(ctx context.Context) error
	Log  *slog.Logger

	accounts accounts
	deaths   deaths

	mu     sync.Mutex
	client *control.Client
	closed bool
}

// Serve gives one cell's connection to skep-model. conn stays the caller's. A cell that
// another skep-model served has what is left of its amounts.
func (g *Gateway) Serve(ctx context.Context, cell string, m right.Model, conn *os.File) error {
	c, err := g.Load()
	if err != nil {
		return fmt.Errorf("read the configuration of models: %w", err)
	}
	var roles []string
	for _, role := range m.Roles {
		if _, ok := c.Role(role); ok {
			roles = append(roles, role)
		}
	}
	if len(roles) == 0 {
		return ErrNoRole
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	client, err := g.running()
	if err != nil {
		return err
	}
	known, files, err := translate(c)
	if err == nil {
		err = client.Config(ctx, known)
	}
	sys.CloseAll(files)
	if err != nil {
		return err // it says that skep-model was to be configured, or which target is at fault
	}
	g.accounts.open(cell)
	tokens, money := g.accounts.of(cell).left(m)
	err = client.AddCell(ctx, control.Cell{ID: cell, Roles: roles, Tokens: tokens, MicroUSD: money}, conn)
	if err != nil {
		return fmt.Errorf("give skep-model the connection of the cell: %w", err)
	}
	return nil
}

// record makes an entry durable, and counts it.
func (g *Gateway) record(ctx context.Context, cell string, body kind.Body) error {
	if err := g.Record(ctx, cell, body); err != nil {
		return err
	}
	g.accounts.count(cell, body)
	return nil
}

// End breaks off the cell's calls and waits until the last is recorded.
func (g *Gateway) End(ctx context.Context, cell string) error {
	defer g.accounts.close(cell)
	g.mu.Lock()
	client := g.client
	g.mu.Unlock()
	if client == nil {
		return nil
	}
	select {
	case <-client.Done():
		return nil // with it every call has ended
	default:
		return client.EndCell(ctx, cell)
	}
}

// Close ends skep-model.
func (g *Gateway) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.client == nil {
		return nil
	}
	err := g.client.Close()
	g.client = nil
	return err
}

// running is a conversation with a skep-model that lives. The caller has the lock.
func (g *Gateway) running() (*control.Client, error) {
	if g.closed {
		return nil, errors.New("start skep-model: skepd is ending")
	}
	if g.client != nil {
		select {
		case <-g.client.Done():
			_ = g.client.Close()
			g.client = nil
		default:
			return g.client, nil
		}
	}
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	cmd := exec.Command(g.Program)
	cmd.Dir = "/"
	cmd.Env = []string{}
	cmd.Stderr = g.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start skep-model: %w", err), ours.Close())
	}
	go func() { _ = cmd.Wait() }()
	g.client = control.NewClient(ours, g.record)
	go g.follow(g.client)
	return g.client, nil
}

// follow waits for the end of a skep-model, and has another one take its place while
// there are cells that had it.
func (g *Gateway) follow(client *control.Client) {
	<-client.Done()
	for g.wanted() {
		pause := g.deaths.next(time.Now())
		g.Log.Error("skep-model died: another one takes its cells", "err", client.Err(), "in", pause)
		<-time.After(pause)
		ctx, cancel := context.WithTimeout(context.Background(), takeover)
		err := g.Lost(ctx)
		cancel()
		if err == nil {
			return
		}
		g.Log.Error("not every cell has its models again", "err", err)
	}
}

// wanted tells whether there are cells that need a skep-model.
func (g *Gateway) wanted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closed && g.accounts.cells() > 0
}

// takeover bounds what giving all cells to another skep-model may take.
const takeover = time.Minute

// deaths says how long to wait after one, so that a skep-model which dies at once is not
// started without end.
type deaths struct {
	mu    sync.Mutex
	last  time.Time
	pause time.Duration
}

const (
	firstPause = 100 * time.Millisecond
	maxPause   = time.Minute
)

func (d *deaths) next(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.last) > 2*maxPause {
		d.pause = 0
	}
	d.last, d.pause = now, min(max(2*d.pause, firstPause), maxPause)
	return d.pause
}

// translate opens what the targets need. The caller closes the files.
func translate(c *config.Config) (control.Config, []*os.File, error) {
	out := control.Config{Targets: map[string]control.Target{}, Roles: map[string][]string{}}
	var files []*os.File
	for _, t := range c.Targets {
		target, err := translateTarget(t)
		if err != nil {
			return out, files, fmt.Errorf("target %s (line %d of %s): %w", t.Name, t.Line, c.File, err)
		}
		if target.File != nil {
			files = append(files, target.File)
		}
		out.Targets[t.Name] = target
	}
	for _, r := range c.Roles {
		out.Roles[r.Name] = r.Targets
	}
	return out, files, nil
}

func translateTarget(t config.Target) (out control.Target, err error) {
	switch t.Kind {
	case config.Script:
		out.Script = true
		out.File, err = os.Open(t.Script)
		return out, err
	case config.OpenAI:
		out = remote(t)
	default:
		return out, errors.New("neither a script nor an OpenAI-compatible URL")
	}
	if t.Key != "" {
		out.File, err = os.Open(t.Key)
	}
	return out, err
}

func remote(t config.Target) control.Target {
	m := t.Remote
	out := control.Target{
		OpenAI: t.URL.String(), Model: m.Model, LimitField: m.LimitField, NoUsageChunk: m.NoUsageChunk,
		MaxOutput: m.MaxOutput, IdleMillis: m.IdleMillis,
	}
	if p := m.Price; p != nil {
		out.Price = &control.Price{
			Version: p.Version, Input: p.Input, Output: p.Output, Cached: p.Cached, Reasoning: p.Reasoning,
		}
	}
	return out
}
