package daemon

import (
	"context"
	"errors"
	"fmt"

	"skep.dev/skep/internal/build"
)

// ours is the build that we are.
func (d *Daemon) ours() build.Build { return build.Build{Version: d.Version, Commit: d.Commit} }

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
