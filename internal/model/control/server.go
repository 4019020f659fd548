package control

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"os"
	"sync"

	"skep.dev/skep/internal/ledger/kind"
	"skep.dev/skep/internal/sys"
)

// Handler is what skep-model does for skepd. Configure and AddCell must not wait
// for a record; EndCell may. Descriptors that they are given are theirs, those
// of Configure only until it returns.
type Handler interface {
	Configure(cfg Config) error
	AddCell(cell Cell, conn *os.File) error
	EndCell(id string) error
}

// Server is skep-model's end.
type Server struct {
	sock  *os.File
	asked questions
}

// NewServer uses sock, which it takes over; see Serve.
func NewServer(sock *os.File) *Server { return &Server{sock: sock} }

// Record has skepd write an entry of a cell and returns when it is durable.
func (s *Server) Record(ctx context.Context, cell string, body kind.Body) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("print %s entry: %w", body.Kind(), err)
	}
	err = ask(ctx, s.sock, &s.asked, message{Op: opRecord, Whose: cell, Kind: string(body.Kind()), Body: b})
	if err != nil {
		return fmt.Errorf("record %s: %w", body.Kind(), err)
	}
	return nil
}

// Serve handles what skepd sends until it is gone, which is nil, or one of the two
// breaks the protocol.
func (s *Server) Serve(h Handler) error {
	defer func() {
		s.asked.end(ErrEnded)
		_ = s.sock.Close()
	}()
	var work sync.WaitGroup
	defer work.Wait()
	for {
		m, files, err := receive(s.sock)
		if errors.Is(err, ErrEnded) {
			return nil
		}
		if err != nil {
			return err
		}
		switch m.Op {
		case opRecorded:
			sys.CloseAll(files)
			err = s.asked.answer(m.ID, m.Error)
		case opConfig:
			err = s.configure(h, m, files)
		case opCell:
			err = s.addCell(h, m, files)
		case opEnd:
			sys.CloseAll(files)
			// It waits for records, whose answers this loop takes.
			work.Go(func() { _ = s.done(m.ID, h.EndCell(m.Whose)) })
		default:
			sys.CloseAll(files)
			err = errProtocol
		}
		if err != nil {
			return fmt.Errorf("serve skepd: %w", err)
		}
	}
}

func (s *Server) configure(h Handler, m message, files []*os.File) error {
	defer sys.CloseAll(files)
	if m.Setup == nil {
		return errProtocol
	}
	for name, t := range m.Setup.Targets {
		if t.Slot < 0 || t.Slot > len(files) {
			return errProtocol
		}
		if t.Slot > 0 {
			t.File = files[t.Slot-1]
			m.Setup.Targets[name] = t
		}
	}
	return s.done(m.ID, h.Configure(*m.Setup))
}

func (s *Server) addCell(h Handler, m message, files []*os.File) error {
	if m.Cell == nil || len(files) != 1 {
		sys.CloseAll(files)
		return errProtocol
	}
	return s.done(m.ID, h.AddCell(*m.Cell, files[0]))
}

// done answers a message of skepd.
func (s *Server) done(id uint64, err error) error {
	m := message{Op: opDone, ID: id}
	if err != nil {
		m.Error = short(err.Error())
	}
	return send(s.sock, m)
}
