// Package skepd is the body of the program: flags to places, a worker, a driver,
// a daemon.
//
// Its laws:
//   - It never runs as root, and refuses to (L6c).
//   - What it is made of is constructed here and nowhere else.
package skepd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"skep.dev/skep/internal/build"
	"skep.dev/skep/internal/cell/native"
	"skep.dev/skep/internal/daemon"
	"skep.dev/skep/internal/daemon/clocks"
	"skep.dev/skep/internal/daemon/models"
	"skep.dev/skep/internal/daemon/resolvers"
	"skep.dev/skep/internal/daemon/selftest"
	"skep.dev/skep/internal/handover/bequest"
	"skep.dev/skep/internal/launch"
	"skep.dev/skep/internal/launch/cgroups"
	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/place"
	"skep.dev/skep/internal/sys"
)

// options are the flags.
type options struct {
	state, run string
	config     string
	auto       bool
	worker     int
	inherits   int
	fault      string
}

// Run serves until a signal, or until an automatic daemon is idle.
func Run(args []string, b build.Build, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("skepd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.state, "state", "", "state directory")
	flags.StringVar(&o.run, "run", "", "run-time directory")
	flags.StringVar(&o.config, "config", "", "config.yaml of the user that skepd works for")
	flags.BoolVar(&o.auto, "auto", false, "end after ten minutes without a cell and a call")
	flags.IntVar(&o.worker, "worker-fd", 0, "socket to a worker that was started before")
	flags.IntVar(&o.inherits, bequest.Flag[2:], 0, "what the skepd left whose place this one takes")
	flags.StringVar(&o.fault, "fault", "", "why what was left could not be gone on with")
	try := flags.Bool("try", false, "say which skepd's place this one could take, and end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *try {
		fmt.Println(tried())
		return nil
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if os.Getuid() == 0 {
		return errors.New("skepd does not run as root: `skep up` starts it as the system user " + launch.SystemUser)
	}
	places, err := findPlaces(o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	programs, err := launch.Programs()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	// Before the worker: its cells' groups are made below the one that we are in.
	if o.auto && o.worker == 0 {
		if err := launch.LeaveSession(); err != nil {
			log.Info("no scope of systemd", "err", err)
		}
	}
	conn, err := worker(o.worker, programs, places.Run)
	if err != nil {
		return err
	}
	driver := native.New(conn)
	defer func() { _ = driver.Close() }()
	c := daemon.Config{
		State: places.State, Run: places.Run, Hidden: places.Dirs(), Driver: driver, Clock: clocks.System{}, Log: log,
		Version: b.Version, Commit: b.Commit, Owners: []uint32{uint32(os.Getuid()), 0}, Auto: o.auto,
		Walls: walls(places.State, programs), Prover: filepath.Join(programs, "skep-worker"),
		Models: func(record func(context.Context, string, kind.Body) error, lost func(context.Context) error) daemon.Models {
			return &models.Gateway{
				Program: filepath.Join(programs, "skep-model"), Load: configOf(places, o), Record: record, Lost: lost, Stderr: os.Stderr, Log: log,
			}
		},
		Orphan: native.EndOrphan, Ceiling: ceilingOf(places.Ceiling), Settings: settingsOf(places, o),
		Names:     resolvers.Files{Conf: "/etc/resolv.conf", Hosts: "/etc/hosts", Switch: "/etc/nsswitch.conf"},
		LockWait:  o.lockWait(),
		Successor: successor(filepath.Join(programs, "skepd"), args),
	}
	defer count(&c, configOf(places, o))()
	d, err := begin(ctx, c, o, conn)
	if err != nil {
		return err
	}
	return d.Serve(ctx)
}

// walls are made by these programs: a proof is of what they are now.
func walls(state, programs string) *selftest.Test {
	t := &selftest.Test{File: filepath.Join(state, "selftest.json"), Now: time.Now}
	for _, name := range []string{"skepd", "skep-worker", "skep-warden", "skep-box"} {
		t.Programs = append(t.Programs, filepath.Join(programs, name))
	}
	return t
}

func findPlaces(o options) (place.Places, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // a system user has none; its places are named by flags
	}
	places, err := place.Find(place.Input{StateFlag: o.state, RunFlag: o.run, UID: os.Getuid(), Home: home, Getenv: os.Getenv})
	if err != nil {
		return place.Places{}, err
	}
	if o.config != "" { // what the caller reads its config from is hidden in every cell (L8b)
		places.Config = o.config
	}
	return places, places.Ensure()
}

// worker is the one that root started, or a child of our own without capabilities.
func worker(fd int, programs, run string) (*os.File, error) {
	if fd != 0 {
		return sys.Inherited(fd, "worker")
	}
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	parents, err := cgroups.Make()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the parent groups of cells: %w", err), ours.Close())
	}
	defer func() { cgroups.Close(parents) }()
	left, err := cgroups.Left(filepath.Join(run, "cells"), parents)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look for groups of cells that a crash left: %w", err), ours.Close())
	}
	parents = append(parents, left...)
	cmd := exec.Command(filepath.Join(programs, "skep-worker"), launch.WorkerArgs(programs, parents)...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	for _, p := range parents {
		cmd.ExtraFiles = append(cmd.ExtraFiles, p.Dir)
	}
	// A terminal's Ctrl-C is for us; the worker ends when we close the socket.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start skep-worker: %w", err), ours.Close())
	}
	go func() { _ = cmd.Wait() }()
	return ours, nil
}
