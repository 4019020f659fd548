package native

import (
	"os"

	"skep.dev/skep/internal/sys"
)

// process is a program that the worker started, held by its pidfd.
type process struct {
	pid   int
	pidfd *os.File
	done  chan struct{}
}

func newProcess(pid int, pidfd *os.File) *process {
	p := &process{pid: pid, pidfd: pidfd, done: make(chan struct{})}
	go func() {
		_ = sys.WaitPidfd(pidfd)
		close(p.done)
	}()
	return p
}

// Pid is the process's number on the host, for messages only: it may be reused.
func (p *process) Pid() int { return p.pid }

// Done is closed when the process has gone.
func (p *process) Done() <-chan struct{} { return p.done }

// Kill ends the process at once.
func (p *process) Kill() error { return sys.KillPidfd(p.pidfd) }
