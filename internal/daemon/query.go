package daemon

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/cells"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/handover"
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

// attach hands the caller's socket to the warden as the cell's one client.
func (d *Daemon) attach(ctx context.Context, q *connect.Request[skepv1.AttachRequest]) (*connect.Response[skepv1.AttachResponse], error) {
	r, err := d.find(q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	p, _ := peer.Of(ctx)
	bundle, err := d.desk.Take(q.Msg.Ticket, p.UID)
	if err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	defer bundle.Close()
	client := bundle.Take(handover.RoleStdio, "")
	if client == nil {
		return nil, invalid(errors.New("the ticket holds no stdio socket"))
	}
	defer func() { _ = client.Close() }()
	l := d.lifeOf(r.ID)
	if l == nil || l.cell() == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the cell does not run: `skep logs` shows what it wrote"))
	}
	if err := l.cell().Attach(client); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(&skepv1.AttachResponse{}), nil
}

func invalid(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }
