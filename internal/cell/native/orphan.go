package native

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"skep.dev/skep/internal/sys"
)

// EndOrphan ends the cell behind a warden's listening socket (L20a), which an
// earlier daemon left, and returns once the warden has gone, and every process of
// the cell with it. was is false if nobody listens there any more.
func EndOrphan(ctx context.Context, socket string) (was bool, err error) {
	conn, err := sys.ConnectUnix(socket, sys.Seqpacket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, sys.ErrNotListening):
		return false, nil
	case err != nil:
		return false, err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return true, err
		}
	}
	var message bytes.Buffer
	if err := binary.Write(&message, binary.NativeEndian, command{Kind: cmdKill}); err != nil {
		return true, fmt.Errorf("encode a command to the warden: %w", err)
	}
	if err := sys.SendFDs(conn, message.Bytes()); err != nil {
		return true, fmt.Errorf("end the cell: %w", err)
	}
	buf := make([]byte, 256)
	for {
		n, files, err := sys.RecvFDs(conn, buf, 0)
		sys.CloseAll(files)
		if n == 0 || err != nil && !errors.Is(err, sys.ErrTruncated) {
			if ctx.Err() != nil || sys.IsTimeout(err) {
				return true, fmt.Errorf("wait for the end of the cell: %w", err)
			}
			return true, nil // it hung up, which it does when it has gone
		}
	}
}
