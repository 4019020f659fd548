package daemon

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/build"
)

// ours is the build that we are.
func (d *Daemon) ours() build.Build { return build.Build{Version: d.Version, Commit: d.Commit} }

// upgrade replaces programs under running cells (L20a). That of skepd itself answers only
// if it could not.
func (d *Daemon) upgrade(ctx context.Context, q *connect.Request[skepv1.UpgradeRequest]) (*connect.Response[skepv1.UpgradeResponse], error) {
	if !d.upgrading.TryLock() {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("another upgrade is under way"))
	}
	defer d.upgrading.Unlock()
	ctx = context.WithoutCancel(ctx) // a caller that left does not leave it half done
	out := &skepv1.UpgradeResponse{}
	var err error
	switch q.Msg.Part {
	case skepv1.UpgradePart_UPGRADE_PART_WORKER:
		out.Build, err = d.replaceWorker(ctx)
	case skepv1.UpgradePart_UPGRADE_PART_SKEPD:
		err = d.succeed(ctx)
	case skepv1.UpgradePart_UPGRADE_PART_BOXES:
		out.Cells, err = d.replaceBoxes(ctx)
	case skepv1.UpgradePart_UPGRADE_PART_UNSPECIFIED:
		return nil, invalid(errors.New("no part is named: worker, skepd or boxes"))
	default:
		return nil, invalid(fmt.Errorf("unknown part %d", q.Msg.Part))
	}
	if err != nil {
		d.Log.Warn("a program was not replaced", "part", q.Msg.Part.String(), "err", err)
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return connect.NewResponse(out), nil
}

func (d *Daemon) replaceWorker(ctx context.Context) (string, error) {
	w, ok := d.Driver.(interface {
		Replace(ctx context.Context) (build string, err error)
	})
	if !ok {
		return "", errors.New("this skepd has no worker that can be replaced")
	}
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	built, err := w.Replace(ctx)
	if err != nil {
		return "", err
	}
	d.noteAll(fmt.Sprintf("skep-worker %s took the place of another under the running cell", built))
	d.boxes.Fill()
	return built, nil
}

// replaceBoxes gives every running cell another box, and tells which have it.
func (d *Daemon) replaceBoxes(ctx context.Context) (replaced []string, err error) {
	d.boxes.Rest() // the spare one is of the old program
	d.boxes.Wake()
	for _, l := range d.lives() {
		switch failed := d.replaceBox(ctx, l); {
		case failed == nil:
			replaced = append(replaced, l.id)
			d.note(l, "another skep-box took the place of the one that served the running cell")
		case !errors.Is(failed, errNotLive): // which needs none
			err = errors.Join(err, failed)
		}
	}
	return replaced, err
}
