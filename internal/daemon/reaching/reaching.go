// Package reaching lets the owner of a running cell reach into it: its agent's terminal, and
// the ports at which the agent listens (boundary.md, B178).
//
// Its law: of a port, its number and who asks are skepd's word to the box, told before the
// owner has his end of the channel. What comes over it is no business of skepd's.
package reaching

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/flow/limit"
	"skep.dev/skep/internal/forwarding"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/sys"
)

// Cell is one that runs.
type Cell interface {
	// Attach makes a socket its one client.
	Attach(client *os.File) error
	// Forward hands its box a channel, which stays the caller's; when it returns the port is open.
	Forward(ctx context.Context, channel *os.File) error
}

// Reaching serves the calls.
type Reaching struct {
	Find func(ref string) (cell string, err error) // with the API's error
	Cell func(id string) Cell                      // nil where it does not run
	Note func(id, text string) error               // into the cell's record
	Desk *handover.Desk
}

// Attach hands the caller's socket to the warden as the cell's one client.
func (r *Reaching) Attach(ctx context.Context, q *connect.Request[skepv1.AttachRequest]) (*connect.Response[skepv1.AttachResponse], error) {
	id, err := r.Find(q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	by, _ := peer.Of(ctx)
	bundle, err := r.Desk.Take(q.Msg.Ticket, by.UID)
	if err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	defer bundle.Close()
	client := bundle.Take(handover.RoleStdio, "")
	if client == nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the ticket holds no stdio socket"))
	}
	defer func() { _ = client.Close() }()
	cell := r.Cell(id)
	if cell == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the cell does not run: `skep logs` shows what it wrote"))
	}
	if err := cell.Attach(client); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewResponse(&skepv1.AttachResponse{}), nil
}

// Forward opens a port.
func (r *Reaching) Forward(ctx context.Context, q *connect.Request[skepv1.ForwardRequest]) (*connect.Response[skepv1.ForwardResponse], error) {
	id, err := r.Find(q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	if q.Msg.Port > 1<<16-1 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("port %d: want 1 to 65535", q.Msg.Port))
	}
	port := uint16(q.Msg.Port)
	if err := limit.CheckServed(port); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	cell := r.Cell(id)
	if cell == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the cell does not run, so that nothing in it listens"))
	}
	by, _ := peer.Of(ctx)
	opening := forwarding.Opening{Port: port, Peer: "uid:" + strconv.FormatUint(uint64(by.UID), 10)}
	if err := r.Note(id, fmt.Sprintf("%s reaches port %d of the cell from the host", opening.Peer, port)); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	channel, err := open(ctx, cell, opening)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	ticket, err := r.Desk.Leave(by.UID, handover.Bundle{Roles: []handover.Role{{Role: handover.RoleForward}}, Files: []*os.File{channel}})
	if err != nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, err)
	}
	return connect.NewResponse(&skepv1.ForwardResponse{Ticket: ticket}), nil
}

// open gives the box of a cell one end of a channel, and the other to the caller.
func open(ctx context.Context, cell Cell, o forwarding.Opening) (*os.File, error) {
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	if err = o.Send(ours); err == nil {
		err = cell.Forward(ctx, theirs)
	}
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	return ours, nil
}
