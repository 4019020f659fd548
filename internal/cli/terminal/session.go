package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// Size is what a terminal shows.
type Size struct{ Rows, Columns uint16 }

// Console is the user's side of a session.
type Console struct {
	In       *os.File
	Out, Err io.Writer
	// Terminal is the user's terminal if the cell has one of its own; nil for pipes.
	Terminal *os.File
	// Raw passes all of the agent's output on.
	Raw bool
	// Later is a session with an agent that may have been stopped when nobody was there.
	Later bool
}

// SizeOf asks for the size of a terminal.
func SizeOf(f *os.File) (Size, error) {
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return Size{}, err
	}
	return Size{Rows: uint16(min(rows, 1<<16-1)), Columns: uint16(min(columns, 1<<16-1))}, nil
}

// IsTerminal tells whether w is one.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Session carries bytes until the warden closes conn, or the user detaches with
// ctrl-p ctrl-q.
func Session(ctx context.Context, conn *os.File, c Console) (detached bool, err error) {
	out := c.Out
	send := &frames{w: conn}
	stop := suspension{conn: conn, send: send, console: c}
	if c.Terminal != nil {
		if stop.restore, err = rawMode(c.Terminal); err != nil {
			return false, err
		}
		defer func() { stop.restore() }()
		if !c.Raw {
			out = NewFilter(out)
		}
	}
	if c.Later {
		_ = send.send(frameStopped, nil)
	}
	left := make(chan struct{})
	ended := make(chan struct{})
	var received error // valid after ended
	go func() {
		defer close(ended)
		received = receive(conn, out, c.Err, stop.take)
	}()
	go input(send, c, func() { close(left) })
	if c.Terminal != nil {
		unfollow := followSize(send, c.Terminal)
		defer unfollow()
	}
	select {
	case <-ended:
		return false, received
	case <-left:
		// Not the hang-up that closing alone would be.
		err := send.send(frameDetach, nil)
		_ = conn.Close()
		<-ended
		return true, err
	case <-ctx.Done():
		_ = conn.Close()
		<-ended
		return false, ctx.Err()
	}
}

// rawMode gives every key to the agent; restore undoes it.
func rawMode(t *os.File) (restore func(), err error) {
	fd := int(t.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	return func() { _ = term.Restore(fd, before) }, nil
}

// input copies what the user types, or what a pipe holds.
func input(send *frames, c Console, detach func()) {
	buf := make([]byte, MaxFrame)
	var keys detachKeys
	for {
		n, err := c.In.Read(buf)
		data := buf[:n]
		if c.Terminal != nil {
			var leave bool
			if data, leave = keys.look(data); leave {
				detach()
				return
			}
		}
		if len(data) > 0 && send.send(frameStdin, data) != nil {
			return
		}
		if err != nil {
			if errors.Is(err, io.EOF) || n == 0 {
				_ = send.send(frameEOF, nil)
			}
			return
		}
	}
}

// detachKeys finds ctrl-p ctrl-q among what is typed. A ctrl-p alone is held back
// until the next key.
type detachKeys struct{ held bool }

const (
	ctrlP = 0x10
	ctrlQ = 0x11
)

func (k *detachKeys) look(data []byte) (rest []byte, detach bool) {
	for _, c := range data {
		switch {
		case k.held && c == ctrlQ:
			return nil, true
		case k.held:
			rest = append(rest, ctrlP)
			k.held = false
		}
		if c == ctrlP {
			k.held = true
			continue
		}
		rest = append(rest, c)
	}
	return rest, false
}

// followSize tells the cell of each new size.
func followSize(send *frames, t *os.File) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-changed:
				if s, err := SizeOf(t); err == nil {
					_ = send.resize(s.Rows, s.Columns)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		close(done)
	}
}
