package terminal

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// suspension stops this program where the agent was stopped, as if it were the
// agent, and goes on with it when the user's shell continues us (L18).
type suspension struct {
	send    *frames
	console Console
	restore func() // gives the terminal the mode back that it had; nil without one
}

// unstopped bounds the wait for a signal that a stopped program always gets: a
// program whose group nobody can continue is not stopped.
const unstopped = time.Second

// take is called when the warden tells that the agent was stopped.
func (s *suspension) take() error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if s.restore != nil {
		s.restore()
	}
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return err
	}
	select {
	case <-continued:
	case <-time.After(unstopped):
	}
	if t := s.console.Terminal; t != nil {
		restore, err := rawMode(t)
		if err != nil {
			return err
		}
		s.restore = restore
		if size, err := SizeOf(t); err == nil {
			_ = s.send.resize(size.Rows, size.Columns) // it may have changed meanwhile
		}
	}
	return s.send.send(frameStopped, nil)
}
