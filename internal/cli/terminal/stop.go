package terminal

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"skep.dev/skep/internal/sys"
)

// suspension stops this program where the agent was stopped, as if it were the
// agent, and goes on with it when the user's shell continues us (L18). It stops no
// other process: who calls us and what runs beside us is not the agent's.
type suspension struct {
	conn    *os.File
	send    *frames
	console Console
	restore func() // gives the terminal the mode back that it had; nil without one
}

// unstopped bounds the wait for a signal that a stopped program always gets: one
// that the kernel did not stop, as its group has no shell that could continue it.
const unstopped = time.Second

// take is called when the warden tells that the agent was stopped. Where nobody could
// see it and continue us, the agent goes on at once. That the cell has ended
// meanwhile is for the reader of the connection to find.
func (s *suspension) take() error {
	if s.seen() {
		if err := s.stop(); err != nil {
			return err
		}
	}
	_ = s.send.send(frameStopped, nil)
	return nil
}

// seen reports whether a user sees that we stop: a shell with job control has us in
// the foreground of the agent's terminal. A script's shell waits for our end alone,
// and a cell that has ended has an end to tell.
func (s *suspension) seen() bool {
	t := s.console.Terminal
	if t == nil || !sys.LeadsForeground(t) {
		return false
	}
	gone, err := sys.HungUp(s.conn)
	return err == nil && !gone
}

func (s *suspension) stop() error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	s.restore()
	// Not SIGSTOP, which also stops what nobody can continue.
	if err := syscall.Kill(os.Getpid(), syscall.SIGTSTP); err != nil {
		return err
	}
	select {
	case <-continued:
	case <-time.After(unstopped):
	}
	restore, err := rawMode(s.console.Terminal)
	if err != nil {
		return err
	}
	s.restore = restore
	if size, err := SizeOf(s.console.Terminal); err == nil {
		_ = s.send.resize(size.Rows, size.Columns) // it may have changed meanwhile
	}
	return nil
}
