// Command skep-worker builds cells for skepd: `serve` answers its requests on
// descriptor 3, `layer` walks and removes the layers of one cell, `keys` stands
// between a cell and its owner's ssh-agent, `prove` tries the walls of the cell that it runs in.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"skep.dev/skep/internal/build"
	"skep.dev/skep/internal/cell/prove"
	"skep.dev/skep/internal/sshagent/relay"
	"skep.dev/skep/internal/sys"
	"skep.dev/skep/internal/sys/inplace"
	"skep.dev/skep/internal/worker/serve"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "skep-worker:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: skep-worker serve --warden PATH --box PATH, started by skepd")
	}
	if args[0] == "prove" {
		return proveWalls(args[1:])
	}
	switch args[0] {
	case "serve":
		return serveRequests(args)
	case "layer":
		conn, err := sys.Inherited(3, "skepd")
		if err != nil {
			return err
		}
		return serve.Layer(conn, args[1:])
	case "keys":
		return relay.Main()
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
}

// proveWalls is the agent of skepd's self-test (L10). It finds no descriptor of
// ours in its cell.
func proveWalls(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: skep-worker prove PID, started by skepd in a cell")
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("read the number of a process: %w", err)
	}
	return prove.Try(os.Stdout, pid)
}

// turn is how a worker begins.
type turn struct {
	answer uint64 // the request by which it took another's place; 0 for the first
	try    bool   // it is only to show that it could serve
}

func serveRequests(args []string) error {
	// Requests come one after the other: a second thread that looks for work would only
	// take the processor from the cell that is being built.
	runtime.GOMAXPROCS(1)
	c, t, err := configure(args)
	if err != nil {
		return err
	}
	if !t.try {
		if c.Conn, err = sys.Inherited(3, "skepd"); err != nil {
			return err
		}
	}
	activated, err := serve.Activated(os.Getenv)
	if err != nil {
		return err
	}
	if activated && !t.try { // descriptor 3 listens
		c.Args = nil
		return serve.Accept(c.Conn, c)
	}
	if t.answer != 0 { // before we start any of our own
		if err := inplace.ReapChildren(); err != nil {
			return err
		}
	}
	w, err := serve.New(c)
	switch {
	case err != nil:
		return err
	case t.try:
		w.Close()
		fmt.Println(serve.Tried)
		return nil
	case t.answer != 0:
		if err := w.Succeed(t.answer, build.This().String()); err != nil {
			return err
		}
	}
	return w.Run()
}

func configure(args []string) (c serve.Config, t turn, err error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.Uint64Var(&t.answer, "answer", 0, "number of the request by which this program took a worker's place")
	flags.BoolVar(&t.try, "try", false, "begin as a worker does, say so, and end")
	flags.StringVar(&c.Warden, "warden", "", "path of skep-warden")
	flags.StringVar(&c.Box, "box", "", "path of skep-box")
	flags.IntVar(&c.Ready, "ready", 1, "how many half-built cells to keep, once one was asked for")
	user := flags.String("user", "", "NAME:UID:GID that a capable worker works for")
	flags.Func("cgroup", "FD:v1|v2:CONTROLLER,... of a parent group, as often as there are hierarchies", func(text string) error {
		h, err := serve.ParseHierarchy(text)
		c.Cgroups = append(c.Cgroups, h)
		return err
	})
	if err := flags.Parse(args[1:]); err != nil {
		return c, t, err
	}
	c.Args = serve.Own(args)
	if c.Self, err = os.Executable(); err != nil {
		return c, t, fmt.Errorf("find this program: %w", err)
	}
	c.User, err = serve.ParseAccount(*user)
	return c, t, err
}
