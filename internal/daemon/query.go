package daemon

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxlink"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/reaching"
)

// find resolves a reference into a record, with the API's error.
func (d *Daemon) find(ref string) (cells.Record, error) {
	r, err := d.cells.Find(ref)
	return r, cells.APIError(err)
}

// defaultGrace is between the polite signal and the end.
const defaultGrace = 10 * time.Second

// stopCell ends a cell and answers when its end is recorded. One that has ended
// already is no error.
func (d *Daemon) stopCell(ctx context.Context, q *connect.Request[skepv1.StopRequest]) (*connect.Response[skepv1.Cell], error) {
	r, err := d.find(q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	grace := time.Duration(q.Msg.GraceMs) * time.Millisecond
	switch {
	case grace < 0 || grace > time.Hour:
		return nil, invalid(errors.New("grace_ms is not within an hour"))
	case grace == 0:
		grace = defaultGrace
	}
	if is, err := d.guests.Stop(ctx, r.ID); is && err != nil {
		return nil, connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	if l := d.lifeOf(r.ID); l != nil {
		l.ask(grace, cells.Cause{Word: "stop"})
		for {
			changed, over := l.watch()
			if over {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	r, _ = d.cells.Get(r.ID)
	return connect.NewResponse(cells.Message(r)), nil
}

// idOf is find for who needs the id.
func (d *Daemon) idOf(ref string) (string, error) {
	r, err := d.find(ref)
	return r.ID, err
}

// reached is a cell that runs, as its owner reaches it.
func (d *Daemon) reached(id string) reaching.Cell {
	l := d.lifeOf(id)
	if l == nil || l.cell() == nil {
		return nil
	}
	return struct {
		cell.Running
		*boxlink.Link
	}{l.cell(), l.boundary.Now().Link}
}

func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }
