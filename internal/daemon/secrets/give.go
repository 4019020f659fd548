package secrets

import (
	"context"
	"errors"
	"os"
	"time"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/peer"
	"skep.dev/skep/internal/handover"
)

const giveTime = 5 * time.Second // a box takes new values

// Box takes the values of a cell.
type Box interface {
	Secrets(ctx context.Context, parcel *os.File) error
}

// Give reads the values and gives them to the boxes of the cell. What cannot be read is not
// available from now on, and the error says so.
func (c *Cell) Give(ctx context.Context, boxes []Box) error {
	if c == nil {
		return nil
	}
	c.giving.Lock()
	defer c.giving.Unlock()
	values, err := c.Read()
	if values == nil {
		return err
	}
	defer func() { _ = values.Close() }()
	ctx, cancel := context.WithTimeout(ctx, giveTime)
	defer cancel()
	for _, b := range boxes {
		err = errors.Join(err, b.Secrets(ctx, values))
	}
	return err
}

// Refresher answers the call Refresh.
type Refresher struct {
	// Of is a running cell's secrets, nil where it has none, and its boxes.
	Of   func(ref string) (*Cell, []Box, error)
	Desk *handover.Desk
}

// Refresh has a cell read its secrets anew, from what its owner has opened now (B131).
func (r *Refresher) Refresh(ctx context.Context, q *connect.Request[skepv1.RefreshRequest]) (*connect.Response[skepv1.RefreshResponse], error) {
	c, boxes, err := r.Of(q.Msg.Cell)
	if err == nil && c == nil {
		err = connect.NewError(connect.CodeFailedPrecondition, errors.New("the cell has no secrets"))
	}
	if err != nil {
		return nil, err
	}
	if q.Msg.Ticket != "" {
		p, _ := peer.Of(ctx)
		bundle, err := r.Desk.Take(q.Msg.Ticket, p.UID)
		if err == nil {
			err = c.Retake(bundle)
			bundle.Close()
		}
		if err == nil {
			err = c.Give(ctx, boxes)
		}
		if err != nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
	}
	return connect.NewResponse(&skepv1.RefreshResponse{Sources: c.Sources()}), nil
}
