package skepd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skep.dev/skep/internal/daemon"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/left"
	"skep.dev/skep/internal/handover/bequest"
	"skep.dev/skep/internal/sys/inplace"
)

// tryTime bounds what a successor may take to say that it could serve.
const tryTime = 10 * time.Second

// tried is what a skepd says of what it could go on with.
func tried() string {
	return fmt.Sprintf("a skepd that reads version %d of what one leaves, and speaks protocol %d to boxes", left.Version, boxlink.Protocol)
}

// successor is the program that stands at our path, with our own arguments.
func successor(program string, args []string) *daemon.Successor {
	own := []string{program}
	for rest := bequest.Own(args); len(rest) > 0; rest = rest[1:] {
		if (rest[0] == "--worker-fd" || rest[0] == "--fault") && len(rest) > 1 { // which are told anew
			rest = rest[1:]
			continue
		}
		own = append(own, rest[0])
	}
	return &daemon.Successor{Program: program, Args: own, Try: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, tryTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "--try")
		cmd.Dir, cmd.Env = "/", []string{}
		said, err := cmd.CombinedOutput()
		if text := strings.TrimSpace(string(said)); err == nil && text != tried() {
			err = fmt.Errorf("it is not %s, but says %q", tried(), text[:min(len(text), 200)])
		}
		if err != nil {
			return fmt.Errorf("try %s before it takes the place: %w", filepath.Base(program), err)
		}
		return nil
	}}
}

// begin is how a skepd comes to be: in the place of another where one left something,
// else by itself. One that cannot go on with what was left begins once more by itself,
// from execve: it finds the cells by their wardens, and ends them.
func begin(ctx context.Context, c daemon.Config, o options, worker *os.File) (*daemon.Daemon, error) {
	c.Fault = o.fault
	if o.inherits == 0 {
		return daemon.Open(ctx, c)
	}
	state := &left.State{}
	heir, err := bequest.Open(o.inherits, left.Version, state)
	if err == nil {
		err = inplace.ReapChildren()
	}
	var d *daemon.Daemon
	if err == nil {
		d, err = daemon.Inherit(ctx, c, state, heir)
	}
	if closed := inplace.CloseInherited(3); closed != nil {
		return nil, errors.Join(err, closed)
	}
	if err == nil {
		return d, nil
	}
	c.Log.Error("skepd cannot go on with the cells of the one whose place it took: it ends them", "err", err)
	number, failed := inplace.Number(worker)
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	args := append(slices.Clone(c.Successor.Args), "--worker-fd", strconv.Itoa(number), "--fault", err.Error())
	return nil, errors.Join(err, inplace.Execute(c.Successor.Program, args, os.Environ(), worker))
}
