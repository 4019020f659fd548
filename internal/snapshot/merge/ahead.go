package merge

import (
	"context"
	"errors"
	"os"

	"skep.dev/skep/internal/snapshot"
)

// aheadOf is how many contents stand open before they are staged.
const aheadOf = 16

// content is the opened content of node n of unit u.
type content struct {
	u, n int
	f    *os.File
	err  error
}

// ahead opens the contents that staging asks for, in its order, so that the process
// which serves them works beside this one. stop closes what was not asked for.
func (t *transaction) ahead(ctx context.Context) (next func(u, n int) (*os.File, error), stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	opened := make(chan content, aheadOf)
	go func() {
		defer close(opened)
		for _, c := range t.contents() {
			c.f, c.err = t.content(ctx, c.u, c.n)
			select {
			case opened <- c:
			case <-ctx.Done():
				if c.f != nil {
					c.f.Close()
				}
				return
			}
		}
	}()
	next = func(u, n int) (*os.File, error) {
		c, ok := <-opened
		if !ok {
			return nil, errors.Join(ctx.Err(), errors.New("its content was not opened"))
		}
		if c.u != u || c.n != n { // never: contents are those that stageNode copies
			return c.f, errors.New("the content of another file was opened")
		}
		return c.f, c.err
	}
	return next, func() {
		cancel()
		for c := range opened {
			if c.f != nil {
				c.f.Close()
			}
		}
	}
}

// contents are the files that staging copies; another name of one is linked to it.
func (t *transaction) contents() (all []content) {
	links := map[linkKey]snapshot.State{}
	for u := range t.units {
		for n := range t.units[u].After {
			node := &t.units[u].After[n]
			key := linkKey{t.units[u].Root, node.Group}
			if first, ok := links[key]; node.State.Type != snapshot.File || ok && node.Group != 0 && first.Same(node.State) {
				continue
			}
			links[key] = node.State
			all = append(all, content{u: u, n: n})
		}
	}
	return all
}
