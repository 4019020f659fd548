package measure

import (
	"context"
	"errors"
	"testing"
	"time"

	"skep.dev/skep/internal/cell"
)

// over is a cell that has ended.
type over struct{ cell.Running }

func (over) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func TestGaugeLooksOnlyWhenItMust(t *testing.T) {
	now, used, held, looks := time.Unix(1000, 0), int64(500), int64(0), 0
	var broken error
	var running cell.Running
	g := Gauge{
		limit: 100, now: func() time.Time { return now }, cell: func() cell.Running { return running },
		used: func() (int64, error) { return used, nil },
		look: func(context.Context) (int64, error) { looks++; return held, broken },
	}
	g.begin()
	for i, step := range []struct {
		change func()
		want   int64
		looks  int
	}{
		{func() {}, 0, 0},
		{func() { used = 560 }, 60, 0},                 // whoever wrote it
		{func() { used, held = 700, 20 }, 20, 1},       // more than the limit came in: it was others
		{func() { used = 770 }, 90, 1},                 // 20 and at most 70 more
		{func() { used, held = 781, 101 }, 101, 2},     // passed
		{func() { used, held = 400, 30 }, 30, 3},       // it held more than the limit: look again
		{func() { used, held = 300, 80 }, 30, 3},       // freed by others, which hides growth
		{func() { now = now.Add(time.Minute) }, 80, 4}, // not for long
		{func() { now, broken = now.Add(time.Minute), errors.New("x") }, 80, 5},
	} {
		step.change()
		got, err := g.read(context.Background())
		if err != nil || got != step.want || looks != step.looks {
			t.Errorf("step %d: %d, %v after %d looks, want %d after %d", i, got, err, looks, step.want, step.looks)
		}
	}
	running = over{}
	if got, err := g.read(context.Background()); err != nil || got != 80 || looks != 6 {
		t.Errorf("at the end: %d, %v after %d looks", got, err, looks)
	}
	used += 21
	if _, err := g.read(context.Background()); !errors.Is(err, broken) {
		t.Errorf("it may hold more, nobody could look, and the error is %v", err)
	}
}

// TestGaugeBegunLater: what was there before is looked at first.
func TestGaugeBegunLater(t *testing.T) {
	g := Gauge{
		limit: 100, now: time.Now, cell: func() cell.Running { return nil }, used: func() (int64, error) { return 0, nil },
		look: func(context.Context) (int64, error) { return 70, nil },
	}
	if got, err := g.read(context.Background()); got != 70 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}
