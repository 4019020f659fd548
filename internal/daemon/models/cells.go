package models

import (
	"context"
	"errors"
	"fmt"
	"os"

	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/right"
	"skep.dev/skep/internal/sys"
)

// Server is the gateway as far as the cells need it.
type Server interface {
	// Serve gives one cell's connection to the gateway, which is started if it
	// does not run. The connection stays the caller's.
	Serve(ctx context.Context, cell string, m right.Model, conn *os.File) error
	// End breaks off a cell's calls and returns when the last one is recorded.
	End(ctx context.Context, cell string) error
}

// Cell is one whose boxes may be connected to the gateway.
type Cell struct {
	ID       string
	Right    right.Model
	Boundary *boxes.Boundary
	Note     func(line string) // for whoever runs it
	Lives    func() bool
}

// Connect connects a box to the gateway if its cell has a right to a model. The gateway
// starts at the first one.
func (c Cell) Connect(ctx context.Context, s Server, b *boxes.Box) error {
	if len(c.Right.Roles) == 0 {
		return nil
	}
	if s == nil {
		return errors.New("the profile has a model right, and this skepd has no gateway")
	}
	err := s.Serve(ctx, c.ID, c.Right, b.Model)
	if errors.Is(err, ErrNoRole) {
		c.Note(err.Error())
		return nil // what it asks of a model is refused
	}
	return err
}

// Again gives each cell that had the gateway the one that runs now, which is started if
// none does: the last one died.
func Again(ctx context.Context, s Server, cells []Cell) error {
	var failed error
	for _, c := range cells {
		if len(c.Right.Roles) == 0 {
			continue
		}
		var err error
		for _, b := range c.Boundary.All() {
			err = errors.Join(err, c.again(ctx, s, b))
		}
		if !c.Lives() { // it ended meanwhile
			err = s.End(ctx, c.ID)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("cell %s: %w", c.ID, err))
		}
	}
	return failed
}

func (c Cell) again(ctx context.Context, s Server, b *boxes.Box) error {
	ours, theirs, err := sys.StreamPair()
	if err != nil {
		return err
	}
	defer sys.CloseAll([]*os.File{ours, theirs})
	if err := s.Serve(ctx, c.ID, c.Right, ours); err != nil {
		if errors.Is(err, ErrNoRole) {
			return nil // what it asks of a model is refused
		}
		return err
	}
	return b.Link.Model(ctx, theirs)
}
