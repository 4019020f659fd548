package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/ledger"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/sys"
)

// Request says what to run, in what a profile would grant.
type Request struct {
	Argv    []string
	Env     []string
	Dir     string   // default: the home
	Read    []string // granted besides /usr, /bin, /lib and /lib64
	Write   []string // each behind an overlay
	Rules   []*skepv1.BoxRule
	Ceiling *skepv1.BoxCeiling
	Stdio   bool // an attached client, in Cell.Client
	Limits  cell.Limits
}

// Cell is one running cell.
type Cell struct {
	ID      string
	Running cell.Running
	Client  net.Conn // frames of L18b, with Request.Stdio

	Executed time.Duration // from the request to the agent's execve, as the driver heard of it
	Before   time.Duration // of that, waiting for the ledger to be durable
	Synced   time.Duration // in all, waiting for the ledger
	Box      int           // process numbers
	begin    time.Time
	rig      *Rig
	box      spareBox
	opened   []*os.File
}

// Start runs one cell and returns after its agent's execve.
func (r *Rig) Start(ctx context.Context, q Request) (_ *Cell, err error) {
	c := &Cell{ID: cells.NewID(), rig: r, begin: time.Now()}
	defer func() {
		if err != nil {
			sys.CloseAll(c.opened)
		}
	}()
	if err := c.record(&kind.CellDeclared{
		Program: kind.Bytes(q.Argv[0]), ProfileDigest: strings.Repeat("0", 64), Rights: []string{}, ConfirmedBy: "uid:0", ConfirmedHow: "shipped",
	}); err != nil {
		return nil, err
	}
	r.Driver.Prepare() // as skepd does: beside what is opened and made here, if no cell is half built
	spec, err := c.furnish(q)
	if err != nil {
		return nil, err
	}
	select {
	case c.box = <-r.spare:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := c.start(ctx, spec, q); err != nil {
		c.box.end()
		return nil, errors.Join(err, r.fill(ctx))
	}
	c.Box = c.box.process.Pid()
	return c, nil
}

// start builds behind the box, as the daemon's startBehind.
func (c *Cell) start(ctx context.Context, spec *cell.Spec, q Request) (err error) {
	c.box.link.Assign(&skepv1.Assignment{
		Cell: c.ID, Generation: 1, Policy: &skepv1.BoxPolicy{Version: "bench", Rules: q.Rules, Ceiling: q.Ceiling},
		Resolver: &skepv1.ResolverUpdate{}, Limits: &skepv1.BoxLimits{},
	}, c.rig)
	spec.Box = c.box.warden
	ready := make(chan error, 1)
	go func() { ready <- c.box.link.Ready(ctx) }()
	if c.Running, err = c.rig.Driver.Start(ctx, spec); err != nil {
		return err
	}
	c.Executed, c.Before = time.Since(c.begin), c.Synced
	_ = c.box.warden.Close() // the warden's own copy alone tells the box of its end
	err = <-ready
	if err == nil {
		err = c.record(&kind.CellStarted{Driver: "native", Walls: []string{"namespaces"}, NotEnforced: []string{}})
	}
	if err != nil {
		_ = c.Running.Kill()
		<-c.Running.Done()
	}
	return err
}

func (c *Cell) record(b kind.Body) error {
	begin := time.Now()
	_, err := c.rig.Ledger.Append(context.Background(), ledger.Entry{Cell: c.ID, Body: b})
	c.Synced += time.Since(begin)
	return err
}

// furnish opens and makes what the cell is built of.
func (c *Cell) furnish(q Request) (*cell.Spec, error) {
	dir := filepath.Join(c.rig.Dir, "cells", c.ID)
	s := &cell.Spec{
		ID: c.ID, Hostname: "cell", Argv: q.Argv, Dir: "/home/agent", HomePath: "/home/agent", ShmSize: 64 << 20, Limits: q.Limits,
		Env: append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent"}, q.Env...),
	}
	if q.Dir != "" {
		s.Dir = q.Dir
	}
	for name, text := range map[string]string{"/etc/hostname": "cell\n", "/etc/hosts": "127.0.0.1 localhost\n", "/etc/passwd": "agent:x:1000:1000::/home/agent:/bin/sh\n", "/etc/group": "agent:x:1000:\n"} {
		s.Files = append(s.Files, cell.File{Path: name, Content: []byte(text)})
	}
	var err error
	keep := func(f *os.File, e error) *os.File {
		if e != nil {
			err = errors.Join(err, e)
			return nil
		}
		c.opened = append(c.opened, f)
		return f
	}
	s.Home, s.Tmp = keep(c.own(dir, "home")), keep(c.own(dir, "tmp"))
	s.Log = keep(os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600))
	s.Control = keep(sys.ListenUnix(filepath.Join(dir, "w"), sys.Seqpacket))
	for _, p := range append([]string{"/usr", "/bin", "/lib", "/lib64"}, q.Read...) {
		s.Grants = append(s.Grants, cell.Grant{Path: p, Object: keep(sys.OpenPath(p)), Dir: true})
	}
	for i, p := range q.Write {
		layer := fmt.Sprint(i)
		keep(c.own(dir, layer+"/upper"))
		keep(c.own(dir, layer+"/work"))
		s.Grants = append(s.Grants, cell.Grant{
			Path: p, Object: keep(sys.OpenPath(p)), Dir: true, Writable: true, Layer: keep(os.Open(filepath.Join(dir, layer))),
		})
	}
	if q.Stdio {
		ours, theirs, e := sys.StreamPair()
		s.Stdio = keep(theirs, e)
		if e == nil {
			c.Client, e = net.FileConn(ours)
			err = errors.Join(err, e, ours.Close())
		}
	}
	return s, err
}

// own makes a directory of the layer, which belongs to the daemon's user.
func (c *Cell) own(dir, name string) (*os.File, error) {
	at := filepath.Join(dir, name)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return nil, err
	}
	if c.rig.owner >= 0 {
		if err := os.Chown(at, c.rig.owner, c.rig.group); err != nil {
			return nil, err
		}
	}
	return os.Open(at)
}

// Wait returns the time from the request to the end of the last process.
func (c *Cell) Wait() (time.Duration, error) {
	<-c.Running.Done()
	took := time.Since(c.begin)
	r := c.Running.Result()
	if r.Failed != nil {
		return took, r.Failed
	}
	if r.ExitCode != 0 {
		log, _ := os.ReadFile(filepath.Join(c.rig.Dir, "cells", c.ID, "log")) // for the message only
		return took, fmt.Errorf("the cell's program ended with %d: %s", r.ExitCode, strings.Trim(string(log), "\x00"))
	}
	return took, nil
}

// End closes the box and what the cell was built of, removes its directory, and
// makes the next spare box: what skepd does beside the next request.
func (c *Cell) End(ctx context.Context) error {
	bye, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := c.box.link.End(bye)
	c.box.end()
	sys.CloseAll(c.opened)
	if c.Client != nil {
		_ = c.Client.Close()
	}
	return errors.Join(err, c.rig.Ledger.EndCell(c.ID), os.RemoveAll(filepath.Join(c.rig.Dir, "cells", c.ID)))
}

// Refill makes the spare box that Start took.
func (r *Rig) Refill(ctx context.Context) error { return r.fill(ctx) }

// Programs are the process numbers of the warden and of PID 1, its only child.
func (c *Cell) Programs() (warden, init int) {
	warden = c.Running.(interface{ WardenPid() int }).WardenPid()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", warden, warden))
	if err == nil {
		_, _ = fmt.Sscan(string(text), &init)
	}
	return warden, init
}

// Draft implements boxlink.Recorder; nobody asks in a benchmark.
func (r *Rig) Draft(string, *skepv1.DraftRequest) (string, error) { return "", nil }

// Asked implements boxlink.Recorder.
func (r *Rig) Asked(string, string) string { return "" }

// UseSecret implements boxlink.Recorder.
func (r *Rig) UseSecret(string, *skepv1.UseSecretRequest) error { return nil }
