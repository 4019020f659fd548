package daemon

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	"skep.dev/skep/internal/cell"
	"skep.dev/skep/internal/cell/celltest/plain"
)

// deaf is a driver whose cells end when the test says so, and not by being killed.
type deaf struct {
	*plain.Driver
	killed chan struct{}
	cells  chan cell.Running
}

func (d *deaf) Start(ctx context.Context, s *cell.Spec) (cell.Running, error) {
	r, err := d.Driver.Start(ctx, s)
	if err == nil {
		d.cells <- r
		r = deafCell{r, d.killed}
	}
	return r, err
}

type deafCell struct {
	cell.Running
	killed chan struct{}
}

func (c deafCell) Kill() error {
	select {
	case c.killed <- struct{}{}:
	default:
	}
	return nil
}

// A daemon that is told to end does so in bounded time, whatever a cell does, and the
// next one ends and records what was left (L20).
func TestEndWaitsForNoDeafCell(t *testing.T) {
	l := newLab(t)
	d := &deaf{Driver: l.driver, killed: make(chan struct{}, 1), cells: make(chan cell.Running, 1)}
	l.config.Driver = d
	l.start()
	stream, err := l.client().Run(context.Background(), connect.NewRequest(l.request("", "/bin/sleep", "1000")))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	running := <-d.cells
	for stream.Receive() {
		if c := stream.Msg().Cell; c != nil && c.Started != "" {
			break
		}
	}
	id := stream.Msg().Cell.Id
	l.stop()
	<-d.killed
	var ended error
	for waiting := true; waiting; {
		l.clock.turn(endAllTime)
		select {
		case ended = <-l.ended:
			waiting = false
		case <-time.After(20 * time.Millisecond): // its timer is set after the kill
		}
	}
	if ended != nil {
		t.Errorf("serve: %v", ended)
	}
	l.ended <- nil
	if err := running.Kill(); err != nil {
		t.Fatal(err)
	}
	<-running.Done()
	l.daemon.work.Wait() // of this process; a real one has exited
	l.config.Driver = l.driver
	l.start()
	got, ok := l.daemon.cells.Get(id)
	if !ok || !got.State.Ended() {
		t.Errorf("the next daemon has the cell as %+v", got)
	}
}
