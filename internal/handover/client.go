package handover

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"skep.dev/skep/internal/sys"
)

// patience bounds one exchange with a desk, which answers at once or is ill.
const patience = 10 * time.Second

// Offer leaves files with the desk at a socket and returns the ticket for them.
// The files stay the caller's.
func Offer(socket string, roles []Role, files []*os.File) (ticket string, err error) {
	if len(roles) != len(files) {
		return "", fmt.Errorf("offer descriptors: %d roles for %d files", len(roles), len(files))
	}
	if len(files) > MaxFiles {
		return "", fmt.Errorf("offer descriptors: %d are more than %d: grant fewer paths", len(files), MaxFiles)
	}
	a, got, err := exchange(socket, request{V: Version, Op: "offer", Roles: roles}, files)
	if err != nil {
		return "", fmt.Errorf("offer descriptors: %w", err)
	}
	sys.CloseAll(got)
	if a.Ticket == "" {
		return "", errors.New("offer descriptors: the answer has no ticket")
	}
	return a.Ticket, nil
}

// Fetch collects what the desk holds under a ticket. The caller owns the bundle.
func Fetch(socket, ticket string) (*Bundle, error) {
	a, files, err := exchange(socket, request{V: Version, Op: "fetch", Ticket: ticket}, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch descriptors: %w", err)
	}
	if len(a.Roles) != len(files) {
		sys.CloseAll(files)
		return nil, fmt.Errorf("fetch descriptors: %d came for %d roles", len(files), len(a.Roles))
	}
	return &Bundle{Roles: a.Roles, Files: files}, nil
}

func exchange(socket string, q request, files []*os.File) (answer, []*os.File, error) {
	conn, err := sys.ConnectUnix(socket, sys.Seqpacket)
	if err != nil {
		return answer{}, nil, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return answer{}, nil, err
	}
	if err := send(conn, q, files); err != nil {
		return answer{}, nil, err
	}
	buf := make([]byte, MaxMessage)
	n, got, err := sys.RecvFDs(conn, buf, MaxFiles)
	if err != nil {
		return answer{}, nil, err
	}
	if n == 0 {
		return answer{}, nil, io.ErrUnexpectedEOF
	}
	var a answer
	if err := decode(buf[:n], &a); err != nil {
		sys.CloseAll(got)
		return answer{}, nil, err
	}
	if a.Error != "" {
		sys.CloseAll(got)
		return answer{}, nil, errors.New(a.Error)
	}
	return a, got, nil
}
