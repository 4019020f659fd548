package reading

import (
	"context"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/daemon/cells"
)

// List answers List: the cells that have not ended, or all.
func (g *Reading) List(_ context.Context, q *connect.Request[skepv1.ListRequest]) (*connect.Response[skepv1.ListResponse], error) {
	out := &skepv1.ListResponse{}
	for _, r := range g.Cells.All() {
		if q.Msg.All || !r.State.Ended() {
			out.Cells = append(out.Cells, cells.Message(r))
		}
	}
	return connect.NewResponse(out), nil
}

// Get answers Get.
func (g *Reading) Get(_ context.Context, q *connect.Request[skepv1.GetRequest]) (*connect.Response[skepv1.Cell], error) {
	r, err := g.find(q.Msg.Cell)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(cells.Message(r)), nil
}
