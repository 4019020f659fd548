package reading

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/outputlog"
)

// logPoll is how soon a follower sees new output.
const logPoll = 100 * time.Millisecond

// Logs streams what the agent wrote.
func (g *Reading) Logs(ctx context.Context, q *connect.Request[skepv1.LogsRequest], out *connect.ServerStream[skepv1.LogChunk]) error {
	r, err := g.find(q.Msg.Cell)
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(g.Cells.Dir(r.ID), LogFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("open the log: %w", err))
	}
	defer func() { _ = f.Close() }()
	send := func(data []byte, dropped uint64) error {
		return out.Send(&skepv1.LogChunk{Data: data, Dropped: int64(dropped)})
	}
	at := q.Msg.From
	for {
		// Asked before the reading: what an ended cell wrote is all there.
		over := !g.Lives(r.ID)
		if at, err = outputlog.Read(f, at, send); err != nil {
			return err
		}
		if !q.Msg.Follow || over {
			return nil
		}
		tick := make(chan struct{})
		stop := g.Clock.AfterFunc(logPoll, func() { close(tick) })
		select {
		case <-tick:
		case <-g.Leaving():
			stop()
			return g.Again
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
	}
}
