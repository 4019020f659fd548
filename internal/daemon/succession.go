package daemon

import (
	"context"
	"errors"
	"fmt"

	skepv1 "skep.dev/skep/api/skep/v1"
	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/daemon/boxes"
	"skep.dev/skep/internal/daemon/furniture/trust"
	"skep.dev/skep/internal/daemon/terms"
)

// replaceBox gives a running cell a box of the program that stands at its path now, with
// the policy that it has (L20a). After an error the cell has the box that it had; one
// that has none any more is ended.
func (d *Daemon) replaceBox(ctx context.Context, l *life) (err error) {
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	r, err := l.runs(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && cell.Ended(r) {
			err = errNotLive
		}
	}()
	ctx, end := l.boundary.While(ctx)
	defer end()
	next, err := d.boxes.Start(ctx)
	if err != nil {
		return err
	}
	old := l.boundary.Now()
	policy := old.Link.Policy()
	if policy == nil {
		if policy, err = d.policy(l); err != nil {
			next.Kill()
			return err
		}
	}
	assignment, err := d.assignment(l, policy)
	if err != nil {
		next.Kill()
		return err
	}
	assignment.Successor = true
	next.Link.Assign(assignment, recorder{d, l, next})
	if err := l.asking().Connect(ctx, d.models, next); err != nil {
		next.Kill()
		return err
	}
	if err := l.boundary.Replace(ctx, next); err != nil {
		if errors.Is(err, boxes.ErrLost) {
			l.lost(r, "it could not be replaced")
		}
		return fmt.Errorf("cell %s: %w", l.id, err)
	}
	// What was told to the one before while this one started.
	next.Link.Push(d.names.Current())
	d.giveSecrets(ctx, l)
	l.swapping.Lock()
	defer l.swapping.Unlock()
	if p := old.Link.Policy(); p != nil && p != policy {
		next.Link.Swap(p)
	}
	return nil
}

// runs waits until the cell's start has ended.
func (l *life) runs(ctx context.Context) (cell.Running, error) {
	for {
		changed, over := l.watch()
		r := l.cell()
		switch {
		case r != nil:
			return r, nil
		case over:
			return nil, errNotLive
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until cell %s has started: %w", l.id, ctx.Err())
		}
	}
}

// assignment is what a box of a cell is told.
func (d *Daemon) assignment(l *life, policy *skepv1.BoxPolicy) (*skepv1.Assignment, error) {
	a := &skepv1.Assignment{
		Cell: l.id, Generation: 1, Policy: policy, Resolver: d.names.Current(), Limits: terms.BoxLimits(l.profile),
	}
	if l.secrets == nil {
		return a, nil
	}
	ceiling, err := d.Ceiling()
	a.Roots = trust.Roots(ceiling.Roots)
	return a, err
}
