// Package agent runs the agent as a child of skep-init, which is its PID 1 where there
// is none above.
//
// Its laws:
//   - Every orphan is reaped; the agent's status comes back exactly (guest.md, G40, G42).
//   - The agent gets the environment as it was, three descriptors and a process group of
//     its own, and no other descriptor (G26).
package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Statuses of skep-init itself (G42).
const (
	SetupFailed   = 125
	NotExecutable = 126
	NotFound      = 127
)

// Command is what to run.
type Command struct {
	Args  []string
	Env   []string
	User  *syscall.Credential // nil: our own
	Attr  *syscall.SysProcAttr
	Grace time.Duration // between SIGTERM and SIGKILL
	// Relay passes every signal as it is and kills nobody: the child is another of us.
	Relay bool
}

// Run starts the command and returns the status to exit with. Started is called when it
// runs; end, when it fires, kills the agent and makes the status SetupFailed.
func Run(c Command, started func() error, end <-chan error) (int, error) {
	if err := TryReaper(); err != nil {
		return SetupFailed, err
	}
	// The child's death signal hangs on the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passed()...)
	defer signal.Stop(signals)
	pid, status, err := start(c)
	if err != nil {
		return status, err
	}
	if started != nil {
		if err := started(); err != nil {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			return SetupFailed, err
		}
	}
	r := &runner{pid: pid, grace: c.Grace, relay: c.Relay, exited: make(chan int, 1)}
	go r.reap()
	return r.watch(signals, end)
}

// TryReaper has orphans come to us where we are not PID 1, to whom they come anyway (G40).
func TryReaper() error {
	if os.Getpid() == 1 {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans: %w", err)
	}
	return nil
}

func start(c Command) (pid, status int, err error) {
	path, err := exec.LookPath(c.Args[0])
	if errors.Is(err, exec.ErrDot) {
		err = nil
	}
	if err != nil {
		return 0, statusOf(err), fmt.Errorf("find %s: %w", c.Args[0], err)
	}
	// Whoever started us may have left descriptors open.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return 0, SetupFailed, fmt.Errorf("keep descriptors from the agent: %w", err)
	}
	attr := c.Attr
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Setpgid, attr.Credential, attr.Pdeathsig = true, c.User, unix.SIGKILL
	if terminal(0) {
		attr.Foreground, attr.Ctty = true, 0
	}
	pid, err = syscall.ForkExec(path, c.Args, &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}, Sys: attr})
	if err != nil {
		return 0, statusOf(err), fmt.Errorf("start %s: %w", path, err)
	}
	return pid, 0, nil
}

func statusOf(err error) int {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return NotFound
	}
	return NotExecutable
}

func terminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// passed are the signals that reach the agent, ending ones as SIGTERM (G41).
func passed() []os.Signal {
	return []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT}
}

type runner struct {
	pid    int
	grace  time.Duration
	relay  bool
	exited chan int
}

// reap waits for every child until there is none; of the agent it tells the status.
func (r *runner) reap() {
	for {
		var w unix.WaitStatus
		pid, err := unix.Wait4(-1, &w, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return // no child is left; who watches has the agent's status
		case pid == r.pid && (w.Exited() || w.Signaled()):
			r.exited <- exitOf(w)
		}
	}
}

func exitOf(w unix.WaitStatus) int {
	if w.Signaled() {
		return 128 + int(w.Signal())
	}
	return w.ExitStatus()
}

// watch passes signals on until the agent has ended, then ends what is left of its group.
func (r *runner) watch(signals <-chan os.Signal, end <-chan error) (int, error) {
	var late <-chan time.Time
	for {
		select {
		case status := <-r.exited:
			r.endGroup()
			return status, nil
		case err := <-end:
			r.kill(unix.SIGKILL)
			<-r.exited
			return SetupFailed, err
		case <-late:
			r.kill(unix.SIGKILL)
		case s := <-signals:
			switch {
			case !r.relay && (s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGQUIT):
				if late != nil {
					r.kill(unix.SIGKILL)
					continue
				}
				late = time.After(r.grace)
				r.kill(unix.SIGTERM)
			default:
				r.kill(s.(syscall.Signal))
			}
		}
	}
}

func (r *runner) kill(s syscall.Signal) { _ = syscall.Kill(-r.pid, s) }

// endGroup gives what the agent left in its group the grace, too (G42).
func (r *runner) endGroup() {
	if syscall.Kill(-r.pid, unix.SIGTERM) != nil {
		return // nobody is there
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(r.grace); time.Now().Before(deadline); <-tick.C {
		if syscall.Kill(-r.pid, 0) != nil {
			return
		}
	}
	r.kill(unix.SIGKILL)
}
