// Package upgrade replaces programs under running cells (L20a).
//
// Its law: one at a time, and as a whole or not at all.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
)

// Programs are what can be replaced.
type Programs struct {
	// Worker returns the build that serves now.
	Worker func(ctx context.Context) (build string, err error)
	// Skepd returns only if it could not.
	Skepd func(ctx context.Context) error
	// Boxes returns the cells that have another one.
	Boxes func(ctx context.Context) (cells []string, err error)
	Log   *slog.Logger

	one sync.Mutex
}

// Upgrade is the call. That of skepd itself answers only if it could not.
func (p *Programs) Upgrade(ctx context.Context, q *connect.Request[skepv1.UpgradeRequest]) (*connect.Response[skepv1.UpgradeResponse], error) {
	if !p.one.TryLock() {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("another upgrade is under way"))
	}
	defer p.one.Unlock()
	ctx = context.WithoutCancel(ctx) // a caller that left does not leave it half done
	out := &skepv1.UpgradeResponse{}
	var err error
	switch q.Msg.Part {
	case skepv1.UpgradePart_UPGRADE_PART_WORKER:
		out.Build, err = p.Worker(ctx)
	case skepv1.UpgradePart_UPGRADE_PART_SKEPD:
		err = p.Skepd(ctx)
	case skepv1.UpgradePart_UPGRADE_PART_BOXES:
		out.Cells, err = p.Boxes(ctx)
	case skepv1.UpgradePart_UPGRADE_PART_UNSPECIFIED:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("no part is named: worker, skepd or boxes"))
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("unknown part %d", q.Msg.Part))
	}
	if err != nil {
		p.Log.Warn("a program was not replaced", "part", q.Msg.Part.String(), "err", err)
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return connect.NewResponse(out), nil
}
