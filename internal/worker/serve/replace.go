package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"skep.dev/skep/internal/sys/inplace"
	"skep.dev/skep/internal/worker/proto"
)

// tryTime bounds what a successor may take to show that it could serve.
const tryTime = 10 * time.Second

// replace executes the program that stands at our path now (L20a). What it needs of us
// is the connection and the directories of cgroups, under their numbers: requests that
// wait on the connection are the successor's. Half-built cells and the resident parent
// end with our ends of their sockets; wardens, boxes and layer processes live on. It
// returns only if it failed, having changed nothing.
func (w *Worker) replace(id uint64) error {
	if w.config.Args == nil {
		return errors.New("this worker was activated by a socket: whoever passed that starts another one")
	}
	if err := w.try(); err != nil {
		return err
	}
	files := []*os.File{w.config.Conn}
	for _, h := range w.cgroups.parents {
		files = append(files, h.Dir)
	}
	args := append([]string{w.config.Self}, w.config.Args...)
	return inplace.Execute(w.config.Self, append(args, "--answer", strconv.FormatUint(id, 10)), os.Environ(), files...)
}

// try has the successor do beside us what it begins with, and end. After execve it
// would be too late to find that it cannot.
func (w *Worker) try() error {
	ctx, cancel := context.WithTimeout(context.Background(), tryTime)
	defer cancel()
	var args []string
	for i := 0; i < len(w.config.Args); i++ {
		if w.config.Args[i] == "--cgroup" { // whose descriptors it does not get
			i++
			continue
		}
		args = append(args, w.config.Args[i])
	}
	cmd := exec.CommandContext(ctx, w.config.Self, append(args, "--try")...)
	cmd.Dir, cmd.Env = "/", os.Environ()
	said, err := cmd.CombinedOutput()
	if err == nil && strings.TrimSpace(string(said)) != Tried {
		err = errors.New("it is no skep-worker of this protocol")
	}
	if err != nil {
		return fmt.Errorf("try %s before it takes the place: %w: %s", w.config.Self, err, strings.TrimSpace(string(said[:min(len(said), 500)])))
	}
	return nil
}

// Tried is what a worker says that was only to try whether it could serve.
const Tried = "a skep-worker that could serve, protocol 1"

// Succeed answers the request by which this program was executed: it serves from here.
func (w *Worker) Succeed(id uint64, build string) error {
	return proto.Send(w.config.Conn, id, proto.Reply{Build: build})
}

// Close gives up what a worker holds that does not serve.
func (w *Worker) Close() { w.parent.close() }

// Own returns the arguments without those that a replacement added.
func Own(args []string) []string {
	if i := slices.Index(args, "--answer"); i >= 0 {
		return slices.Delete(slices.Clone(args), i, min(i+2, len(args)))
	}
	return args
}
