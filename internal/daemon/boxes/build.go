package boxes

import (
	"context"
	"errors"

	"skep.dev/skep/internal/cell"
)

// Builder starts cells.
type Builder interface {
	Start(ctx context.Context, spec *cell.Spec) (cell.Running, error)
}

// Build starts the cell and waits until its box has answered a request
// under the policy (B163). The box gets the cell's sockets from the warden while
// that builds, so that both go on at once; a failure of one ends the other.
func (b *Box) Build(ctx context.Context, driver Builder, spec *cell.Spec) (cell.Running, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan error, 1)
	go func() {
		err := b.Link.Ready(ctx)
		if err != nil {
			cancel()
		}
		ready <- err
	}()
	r, err := driver.Start(ctx, spec)
	if err != nil {
		cancel()
		if boxErr := <-ready; boxErr != nil && !errors.Is(boxErr, context.Canceled) {
			err = boxErr // it failed first, and Start because of it
		}
		return nil, err
	}
	if err := <-ready; err != nil {
		_ = r.Kill()
		<-r.Done()
		return nil, err
	}
	return r, nil
}
