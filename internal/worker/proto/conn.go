package proto

import (
	"errors"
	"fmt"
	"io"
	"os"

	"skep.dev/skep/internal/sys"
)

// ErrClosed says that the other side has gone.
var ErrClosed = errors.New("the worker connection is closed")

// Send writes one message: header, body in a sealed memory file, descriptors.
// The files stay the caller's.
func Send(conn *os.File, id uint64, body any, files ...*os.File) error {
	encoded, err := Encode(body)
	if err != nil {
		return err
	}
	memory, err := sys.SealedFile("skep-message", encoded)
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	header, err := Encode(Header{Version: Version, ID: id})
	if err != nil {
		return err
	}
	return sys.SendFDs(conn, header, append([]*os.File{memory}, files...)...)
}

// Receive reads one message into body. The files are the caller's. At the end
// of the connection it returns ErrClosed; after any other error the connection is
// of no use, except that a *BodyError leaves it usable and carries the id to answer.
func Receive(conn *os.File, body any) (id uint64, files []*os.File, err error) {
	buf := make([]byte, 256)
	n, files, err := sys.RecvFDs(conn, buf, sys.MaxPassedFDs)
	if err != nil {
		return 0, nil, err
	}
	if n == 0 {
		return 0, nil, ErrClosed
	}
	var h Header
	if err := Decode(buf[:n], &h); err != nil {
		sys.CloseAll(files)
		return 0, nil, err
	}
	if h.Version != Version {
		sys.CloseAll(files)
		return 0, nil, fmt.Errorf("worker protocol version %d, this is %d", h.Version, Version)
	}
	if len(files) == 0 {
		return h.ID, nil, &BodyError{errors.New("no body came")}
	}
	memory, files := files[0], files[1:]
	err = readBody(memory, body)
	_ = memory.Close()
	if err != nil {
		sys.CloseAll(files)
		return h.ID, nil, &BodyError{err}
	}
	return h.ID, files, nil
}

// BodyError is a message that was understood as one, but not in what it asks.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *BodyError) Unwrap() error { return e.Err }

func readBody(memory *os.File, body any) error {
	if err := sys.RequireSealed(memory); err != nil {
		return err
	}
	encoded, err := io.ReadAll(io.NewSectionReader(memory, 0, MaxBody+1))
	if err != nil {
		return fmt.Errorf("read worker message: %w", err)
	}
	if len(encoded) > MaxBody {
		return fmt.Errorf("worker message is longer than %d bytes", MaxBody)
	}
	return Decode(encoded, body)
}
