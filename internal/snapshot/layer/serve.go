package layer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"skep.dev/skep/internal/snapshot"
	"skep.dev/skep/internal/snapshot/tree"
	"skep.dev/skep/internal/snapshot/walk"
	"skep.dev/skep/internal/sys"
)

// Grant is one writable grant as the layer process holds it: the two trees,
// and the directory whose whole content Remove throws away (the overlay's upper
// and work directory). Dir may be nil where nothing is removed.
type Grant struct {
	walk.Grant
	Dir *os.File
}

// Powers says what a connection may ask for.
type Powers struct {
	Walk   bool
	Open   bool // contents: for a process of the cell's owner only
	Remove bool // for the daemon only
	// Measure tells how many bytes the disk holds, for the daemon only.
	Measure bool
}

// Serve answers requests on conn, a seqpacket socket, one after the other,
// until the peer hangs up (nil), ctx ends or the socket fails. It closes nothing
// that it was given. Call Confine first in a process of its own.
func Serve(ctx context.Context, conn *os.File, grants []Grant, powers Powers) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	s := &server{ctx: ctx, conn: conn, grants: grants, powers: powers}
	buf := make([]byte, MaxMessage)
	for {
		n, files, err := sys.RecvFDs(conn, buf, 0)
		sys.CloseAll(files)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		if err := s.answer(buf[:n]); err != nil {
			return err
		}
	}
}

type server struct {
	ctx    context.Context
	conn   *os.File
	grants []Grant
	powers Powers
}

// sendError marks an error of the socket itself: nothing more can be said.
type sendError struct{ error }

func (s *server) send(packet []byte, files ...*os.File) error {
	if err := sys.SendFDs(s.conn, packet, files...); err != nil {
		return sendError{err}
	}
	return nil
}

// answer performs one request. Its error ends the connection; a failed request
// is an answer.
func (s *server) answer(packet []byte) error {
	err := s.perform(packet)
	var broken sendError
	if err == nil || errors.As(err, &broken) {
		return err
	}
	w := message(kindFailure)
	w.u8(byte(codeOf(err)))
	text := err.Error()
	w.text(text[:min(len(text), maxFailure)])
	return s.send(w.b)
}

const maxFailure = 1 << 10

func codeOf(err error) Code {
	var f *Failure
	switch {
	case errors.As(err, &f):
		return f.Code
	case tree.Missing(err):
		return NotFound
	}
	return Internal
}

func (s *server) perform(packet []byte) error {
	k, r, err := open(packet)
	if err != nil {
		return err
	}
	switch k {
	case kindWalk:
		return s.walk(r)
	case kindOpen:
		return s.open(r)
	case kindRemove:
		return s.remove(r)
	case kindMeasure:
		return s.measure(r)
	}
	return fmt.Errorf("request of unknown kind %d", k)
}

func (s *server) walk(r *reader) error {
	if err := r.done(); err != nil {
		return err
	}
	if !s.powers.Walk {
		return &Failure{Code: Forbidden, Text: "this connection may not walk"}
	}
	sent := uint64(0)
	yield := func(e snapshot.Entry) error {
		sent++
		return s.send(encodeEntry(&e))
	}
	for i, g := range s.grants {
		if err := walk.Layer(s.ctx, i, g.Grant, yield, s.progress); err != nil {
			return fmt.Errorf("walk grant %d: %w", i, err)
		}
	}
	return s.sendDone(sent)
}

// progress also finds out that the client went away while a long file is read.
func (s *server) progress(int64) error { return s.send(message(kindProgress).b) }

func (s *server) sendDone(count uint64) error {
	w := message(kindDone)
	w.u64(count)
	return s.send(w.b)
}

func (s *server) open(r *reader) error {
	side, index, path := snapshot.Side(r.u8()), r.u32(), r.text(snapshot.MaxPath)
	if err := r.done(); err != nil {
		return err
	}
	if !s.powers.Open {
		return &Failure{Code: Forbidden, Text: "this connection may not open contents"}
	}
	if int64(index) >= int64(len(s.grants)) {
		return fmt.Errorf("open in grant %d of %d", index, len(s.grants))
	}
	if err := snapshot.CheckPath(path); err != nil {
		return err
	}
	g := &s.grants[index]
	if given := g.Files[path]; given != nil && side == snapshot.BaseSide {
		// The one descriptor that there is of a granted file. Its offset is
		// shared with the receiver, who reads from the start.
		if _, err := given.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return s.send(message(kindFile).b, given)
	}
	f, err := openRegular(g, side, path)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.send(message(kindFile).b, f)
}

// openRegular opens a regular file of one side to read. It looks before it
// opens, so that no FIFO or device is touched, and again after.
func openRegular(g *Grant, side snapshot.Side, path string) (*os.File, error) {
	root := g.Upper
	switch {
	case side == snapshot.BaseSide && g.Base == nil:
		return nil, &Failure{Code: NotFound, Text: "no such file is granted"}
	case side == snapshot.BaseSide:
		root = g.Base
	case side != snapshot.LayerSide:
		return nil, fmt.Errorf("open side %d", side)
	}
	parent, name, err := sys.OpenParentBeneath(root, path)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	st, err := sys.StatAt(parent, name)
	if err != nil {
		return nil, err
	}
	if tree.TypeOf(&st) != snapshot.File {
		return nil, &Failure{Code: NotRegular, Text: "not a regular file"}
	}
	f, err := sys.OpenBeneath(parent, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	now, err := sys.StatFile(f)
	if err == nil && (now.Ino != st.Ino || now.Dev != st.Dev) {
		err = fmt.Errorf("open %q: it was replaced meanwhile", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s *server) remove(r *reader) error {
	if err := r.done(); err != nil {
		return err
	}
	if !s.powers.Remove {
		return &Failure{Code: Forbidden, Text: "this connection may not remove"}
	}
	for i := range s.grants {
		if s.grants[i].Dir == nil {
			return fmt.Errorf("grant %d has no directory to remove", i)
		}
		if err := tree.Empty(s.grants[i].Dir); err != nil {
			return fmt.Errorf("remove the layer of grant %d: %w", i, err)
		}
		if err := s.progress(0); err != nil {
			return err
		}
	}
	return s.sendDone(uint64(len(s.grants)))
}

// measure adds up the directories of all grants.
func (s *server) measure(r *reader) error {
	if err := r.done(); err != nil {
		return err
	}
	if !s.powers.Measure {
		return &Failure{Code: Forbidden, Text: "this connection may not measure"}
	}
	total := int64(0)
	for i := range s.grants {
		if s.grants[i].Dir == nil {
			return fmt.Errorf("grant %d has no directory to measure", i)
		}
		held, err := tree.Held(s.grants[i].Dir, func() error { return s.progress(0) })
		if err != nil {
			return fmt.Errorf("measure grant %d: %w", i, err)
		}
		total += held
	}
	return s.sendDone(uint64(total))
}
