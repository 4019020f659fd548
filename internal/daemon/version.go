package daemon

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// The versions of the contract that this daemon speaks: its own, and the one
// before, so that a client of the last release works. There is none before 1.
const (
	apiMax = 1
	apiMin = max(1, apiMax-1)
)

// negotiate finds the newest version that both sides speak; 0 if there is none.
func negotiate(clientMin, clientMax, serverMin, serverMax int32) int32 {
	v := min(clientMax, serverMax)
	if clientMin > clientMax || v < clientMin || v < serverMin {
		return 0
	}
	return v
}

func (d *Daemon) version(_ context.Context, q *connect.Request[skepv1.VersionRequest]) (*connect.Response[skepv1.VersionResponse], error) {
	v := negotiate(q.Msg.ApiMin, q.Msg.ApiMax, apiMin, apiMax)
	if v == 0 {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(
			"skepd %s speaks API %d to %d, the caller %d to %d: one of the two is of another release; a skepd without a cell ends after ten minutes",
			d.Version, apiMin, apiMax, q.Msg.ApiMin, q.Msg.ApiMax))
	}
	return connect.NewResponse(&skepv1.VersionResponse{
		Version: d.Version, Commit: d.Commit, Api: v, ApiMin: apiMin, ApiMax: apiMax, State: d.State,
	}), nil
}
