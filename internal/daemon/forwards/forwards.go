// Package forwards lets the owner of a running cell reach its agent from the host
// (boundary.md, B178).
//
// Its law: the port, and who it is, are skepd's word to the box, told before the owner has
// his end of the channel. What comes over it is no business of skepd's.
package forwards

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/forwarding"
	"skep.dev/skep/internal/handover"
	"skep.dev/skep/internal/policy"
	"skep.dev/skep/internal/sys"
)

// Box is the box that serves a cell.
type Box interface {
	// Forward hands it a channel, which stays the caller's; when it returns the port is open.
	Forward(ctx context.Context, channel *os.File) error
}

// Forwards opens ports.
type Forwards struct {
	Find func(ref string) (cell string, err error) // with the API's error
	Box  func(cell string) Box                     // nil where the cell does not run
	Note func(cell, text string) error             // into the cell's record
	Desk *handover.Desk
}

// Open is the call.
func (f *Forwards) Open(ctx context.Context, q *connect.Request[skepv1.ForwardRequest]) (*connect.Response[skepv1.ForwardResponse], error) {
	cell, err := f.Find(q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	if q.Msg.Port > 1<<16-1 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("port %d: want 1 to 65535", q.Msg.Port))
	}
	port := uint16(q.Msg.Port)
	if err := policy.CheckServed(port); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	box := f.Box(cell)
	if box == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the cell does not run, so that nothing in it listens"))
	}
	by, _ := peer.Of(ctx)
	opening := forwarding.Opening{Port: port, Peer: "uid:" + strconv.FormatUint(uint64(by.UID), 10)}
	if err := f.Note(cell, fmt.Sprintf("%s reaches port %d of the cell from the host", opening.Peer, port)); err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	channel, err := open(ctx, box, opening)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	ticket, err := f.Desk.Leave(by.UID, handover.Bundle{Roles: []handover.Role{{Role: handover.RoleForward}}, Files: []*os.File{channel}})
	if err != nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, err)
	}
	return connect.NewResponse(&skepv1.ForwardResponse{Ticket: ticket}), nil
}

// open gives a box one end of a channel, and the other to the caller.
func open(ctx context.Context, box Box, o forwarding.Opening) (*os.File, error) {
	ours, theirs, err := sys.SeqpacketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	if err = o.Send(ours); err == nil {
		err = box.Forward(ctx, theirs)
	}
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	return ours, nil
}
